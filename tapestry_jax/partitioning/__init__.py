"""An arrow inside of ordinary jitted code: XLA says where its operands lie, a plan follows, and its program runs there.

Read `partitioned`, what users call, then `call`, one operation of XLA's graph, and `tensors`, its operands and those of
its gradients: `rule` tells the partitioner how shardings pass through, `following` makes the plan of the shardings that
it found, `local` the program of one device, and `settings` are those of JAX where the program was called.
"""
