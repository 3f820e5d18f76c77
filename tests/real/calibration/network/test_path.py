"""Two ends of a connection of our own, in two threads of this process."""

from __future__ import annotations

import threading

import pytest

from real.calibration.network.path import PathEnd, own_address


def test_path_times_agree_at_the_two_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert own_address() == "127.0.0.1"
    leader, other = PathEnd(), PathEnd()
    address = leader.listen()
    times: dict[str, float] = {}

    def follow() -> None:
        other.meet(address)
        times["other"] = other.one_way_s(leads=False)

    thread = threading.Thread(target=follow)
    thread.start()
    leader.meet(address)
    times["leader"] = leader.one_way_s(leads=True)
    thread.join()
    leader.close()
    other.close()
    # They take turns in one interpreter, so times are long, but each round trip of one is one of the other.
    assert times["leader"] == pytest.approx(times["other"], rel=0.5)


def test_unanswered_end_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("real.calibration.network.path._TIMEOUT_S", 0.2)
    leader, other = PathEnd(), PathEnd()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    address = leader.listen()
    thread = threading.Thread(target=other.meet, args=[address])
    thread.start()
    leader.meet(address)
    thread.join()
    with pytest.raises(TimeoutError, match="the other end of the path does not answer"):
        leader.one_way_s(leads=True)
    leader.close()
    other.close()
