from triton.runtime import driver


def do_bench(fn, rep=3):
    """Return the mean milliseconds of a call behind which L2 holds none of its data."""
    active = driver.active
    of_device, cache, total = active.get_device_interface(), active.get_empty_cache_for_benchmark(), 0.0
    for _ in range(rep):
        active.clear_cache(cache)
        start, end = (of_device.Event(enable_timing=True) for _ in range(2))
        start.record()
        fn()
        end.record()
        of_device.synchronize()
        total += start.elapsed_time(end)
    return total / rep
