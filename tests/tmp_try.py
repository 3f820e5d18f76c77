import time, torch
from tests.contract.worlds import scenario
from tests.real.pool import shared_pool
import tests.tmp_prog as tp
if __name__=="__main__":
    t=time.time()
    for i in range(3):
        r=shared_pool().play(tp.P(), scenario(2,2)); print(time.time()-t)
    for s in r.spans[:20]: print(s.rank,s.kind,s.label,s.group,s.call,s.sequence,s.issued_ns,s.start_ns,s.end_ns,s.wait_from_ns,s.wait_until_ns,s.bytes_in)
    print(r.info)
    shared_pool().close()
