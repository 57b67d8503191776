#!/usr/bin/python3
"""The update rules against PyTorch's own optimizers, over the C ABI of libparallax.so by ctypes.

  optimizers_test.py LIBRARY    exit status 0: all agree; 1: one does not; 77: torch is missing

Random sequences of steps with random rows (duplicates among them), some of them without the
variable, of one rank. What PyTorch computes in another order may differ by a few roundings: the
bound is 2e-6 of the largest value for float, 1e-14 for double.
"""

import ctypes
import sys

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; apt-get install python3-torch")
    sys.exit(77)

SGD, ADAGRAD, ADAM, MOMENTUM = 1, 2, 3, 4
F32, F64 = 0, 1
UNIFORM = 1
ROWS_FORM = 1
LEARNING_RATE = 0.05
STEPS = 60
DECAY = 0.125  # what a float holds
ZERO = -1.0  # PARALLAX_ZERO


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)]  # the rest is zero: one rank, alone


class Variable(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("rows", ctypes.c_uint64),
        ("row_elements", ctypes.c_uint64),
        ("dtype", ctypes.c_uint32),
        ("tag", ctypes.c_uint32),
        ("reduction", ctypes.c_uint32),
        ("rule", ctypes.c_uint32),
        ("rows_max", ctypes.c_uint64),
        ("init_seed", ctypes.c_uint64),
        ("init", ctypes.c_uint32),
        ("init_low", ctypes.c_float),
        ("init_high", ctypes.c_float),
        ("epsilon", ctypes.c_float),
        ("initial_accumulator_value", ctypes.c_float),
        ("nesterov", ctypes.c_uint32),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("momentum", ctypes.c_double),
        ("refuse_nonfinite", ctypes.c_uint32),
        ("accumulate", ctypes.c_uint32),
        ("rates", ctypes.c_uint32),
    ]


class Slice(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("variable", ctypes.c_uint32),
        ("form", ctypes.c_uint32),
        ("ids", ctypes.c_void_p),
        ("row_count", ctypes.c_uint64),
        ("values", ctypes.c_void_p),
        ("as_dtype", ctypes.c_uint32),
        ("more", ctypes.c_uint32),
        ("ids_i32", ctypes.c_void_p),
    ]


class Rates(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("learning_rate", ctypes.c_float),
        ("weight_decay", ctypes.c_float),
        ("decoupled", ctypes.c_uint32),
        ("maximize", ctypes.c_uint32),
        ("clip_norm", ctypes.c_float),
        ("reserved", ctypes.c_uint32),
    ]


class StepEnd(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("learning_rate", ctypes.c_float),
        ("clip_norm", ctypes.c_float),
        ("found_inf", ctypes.c_uint32),
        ("absent", ctypes.c_uint32),
        ("rates", ctypes.POINTER(Rates)),
        ("rates_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Library:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        self.calls.parallax_last_error.restype = ctypes.c_char_p
        self.calls.parallax_wait.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]

    def must(self, status):
        if status != 0:
            raise RuntimeError(self.calls.parallax_last_error().decode())

    def finish(self, request):
        self.must(self.calls.parallax_wait(ctypes.byref(request), 1, -1))
        self.must(self.calls.parallax_request_release(request))


class Table:
    """One managed variable of a job of one rank."""

    ROWS, WIDTH, ROWS_MAX = 40, 7, 64

    def __init__(self, library, case):
        self.library, self.sparse, self.clip = library, case["sparse"], case.get("clip", 0.0)
        self.rates = case.get("rates")
        rule, sparse, dtype = case["rule"], case["sparse"], case["dtype"]
        fields = dict(case.get("fields", {}), rates=1 if self.rates else 0)
        self.torch_dtype = torch.float64 if dtype == F64 else torch.float32
        self.job = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options))
        library.must(library.calls.parallax_open(ctypes.byref(options), ctypes.byref(self.job)))
        variable = Variable(
            size=ctypes.sizeof(Variable), name=b"table", rows=self.ROWS, row_elements=self.WIDTH,
            dtype=dtype, rule=rule, rows_max=self.ROWS_MAX if sparse else 0, init=UNIFORM,
            init_low=-1, init_high=1, init_seed=5, **fields)
        number = ctypes.c_uint32()
        library.must(library.calls.parallax_register(self.job, ctypes.byref(variable),
                                                     ctypes.byref(number)))
        library.must(library.calls.parallax_commit(self.job))

    def begin(self):
        step = ctypes.c_uint64()
        self.library.must(self.library.calls.parallax_step_begin(self.job, ctypes.byref(step)))
        return step

    def end(self, step):
        options = StepEnd(size=ctypes.sizeof(StepEnd), clip_norm=self.clip)
        if self.rates:
            # The table is of the second group.
            of_group = dict(dict(learning_rate=LEARNING_RATE), **self.rates)
            rates = (Rates * 2)(Rates(learning_rate=9, weight_decay=9), Rates(**of_group))
            for each in rates:
                each.size = ctypes.sizeof(Rates)
            options.rates, options.rates_count = rates, 2
        else:
            options.learning_rate = LEARNING_RATE
        request = ctypes.c_void_p()
        self.library.must(self.library.calls.parallax_step_end(
            self.job, step, ctypes.byref(options), ctypes.byref(request)))
        self.library.finish(request)

    def call(self, what, step, ids, values):
        each = Slice(size=ctypes.sizeof(Slice), values=values.data_ptr())
        if self.sparse:
            each.form, each.ids, each.row_count = ROWS_FORM, ids.data_ptr(), len(ids)
        request = ctypes.c_void_p()
        self.library.must(what(self.job, step, ctypes.byref(each), ctypes.c_size_t(1),
                               ctypes.byref(request)))
        self.library.finish(request)

    def push(self, ids, gradients):
        step = self.begin()
        if gradients is not None:
            self.call(self.library.calls.parallax_push, step, ids, gradients)
        self.end(step)

    def values(self):
        every = torch.arange(self.ROWS)
        values = torch.empty(self.ROWS, self.WIDTH, dtype=self.torch_dtype)
        step = self.begin()
        self.call(self.library.calls.parallax_pull, step, every, values)
        self.end(step)
        return values

    def close(self):
        self.library.must(self.library.calls.parallax_close(self.job))


def gradient_of(table):
    """Row ids and their gradients; of a dense variable all rows; None: not in this step."""
    if torch.rand(()) < 0.15:
        return None, None
    # At least one row: torch 1.13 cannot take a sparse gradient without any.
    count = int(torch.randint(1, table.ROWS_MAX // 3, ())) if table.sparse else table.ROWS
    ids = torch.randint(0, table.ROWS, (count,)) if table.sparse else torch.arange(table.ROWS)
    scale = 10.0 ** torch.randint(-3, 2, (count, 1)).to(table.torch_dtype)
    return ids, torch.randn(count, table.WIDTH, dtype=table.torch_dtype) * scale


def largest_difference(library, case):
    """Of all values after every ten steps, in units of the largest value."""
    torch.manual_seed(1)
    clip = case.get("clip", 0.0) or case.get("rates", {}).get("clip_norm", 0.0)
    table = Table(library, case)
    parameter = torch.nn.Parameter(table.values())
    optimizer = case["optimizer"]([parameter])
    worst = 0.0
    for step in range(1, STEPS + 1):
        ids, gradients = gradient_of(table)
        table.push(ids, gradients)
        if gradients is None:
            parameter.grad = None
        elif case["sparse"]:
            parameter.grad = torch.sparse_coo_tensor(ids[None], gradients, parameter.shape)
        else:
            parameter.grad = gradients
        if clip > 0 and gradients is not None:
            # Of a sparse gradient it scales a copy: give it all rows.
            parameter.grad = parameter.grad.to_dense() if case["sparse"] else parameter.grad
            torch.nn.utils.clip_grad_norm_([parameter], clip)
        optimizer.step()
        if step % 10 == 0:
            want = parameter.detach()
            worst = max(worst, float((table.values() - want).abs().max() / want.abs().max()))
    moved = float((parameter.detach() - table.values()).abs().max())
    table.close()
    if moved != moved:
        raise RuntimeError("NaN")
    return worst


def cases():
    optim = torch.optim
    for dtype in (F32, F64):
        yield dict(name="SGD", rule=SGD, sparse=True, dtype=dtype,
                   optimizer=lambda p: optim.SGD(p, LEARNING_RATE))
        yield dict(name="SGD", rule=SGD, sparse=False, dtype=dtype,
                   optimizer=lambda p: optim.SGD(p, LEARNING_RATE))
        for sparse in (True, False):
            yield dict(name="SGD, clip_norm 0.5", rule=SGD, sparse=sparse, dtype=dtype, clip=0.5,
                       optimizer=lambda p: optim.SGD(p, LEARNING_RATE))
            yield dict(name="Adagrad", rule=ADAGRAD, sparse=sparse, dtype=dtype,
                       optimizer=lambda p: optim.Adagrad(p, LEARNING_RATE))
        yield dict(name="Adagrad, accumulator 0.5, eps 0.125", rule=ADAGRAD, sparse=True,
                   dtype=dtype, fields=dict(initial_accumulator_value=0.5, epsilon=0.125),
                   optimizer=lambda p: optim.Adagrad(p, LEARNING_RATE, eps=0.125,
                                                     initial_accumulator_value=0.5))
        yield dict(name="SparseAdam", rule=ADAM, sparse=True, dtype=dtype,
                   optimizer=lambda p: optim.SparseAdam(p, LEARNING_RATE))
        yield from rated_cases(dtype)
        yield dict(name="SparseAdam, betas 0.5 and 0.75, eps 2^-6", rule=ADAM, sparse=True,
                   dtype=dtype, fields=dict(beta1=0.5, beta2=0.75, epsilon=2.0 ** -6),
                   optimizer=lambda p: optim.SparseAdam(p, LEARNING_RATE, (0.5, 0.75), 2.0 ** -6))
        yield dict(name="Adam", rule=ADAM, sparse=False, dtype=dtype,
                   optimizer=lambda p: optim.Adam(p, LEARNING_RATE))
        yield dict(name="Adam, betas 0.5 and 0.75, eps 2^-6", rule=ADAM, sparse=False,
                   dtype=dtype, fields=dict(beta1=0.5, beta2=0.75, epsilon=2.0 ** -6),
                   optimizer=lambda p: optim.Adam(p, LEARNING_RATE, (0.5, 0.75), 2.0 ** -6))
        yield dict(name="SparseAdam, beta1 0", rule=ADAM, sparse=True, dtype=dtype,
                   fields=dict(beta1=ZERO),
                   optimizer=lambda p: optim.SparseAdam(p, LEARNING_RATE, (0.0, 0.999)))
        yield dict(name="Adam, betas 0", rule=ADAM, sparse=False, dtype=dtype,
                   fields=dict(beta1=ZERO, beta2=ZERO),
                   optimizer=lambda p: optim.Adam(p, LEARNING_RATE, (0.0, 0.0)))
        for nesterov in (False, True):
            yield dict(name=f"SGD, momentum 0.9, nesterov {nesterov}", rule=MOMENTUM, sparse=False,
                       dtype=dtype, fields=dict(momentum=0.9, nesterov=nesterov),
                       optimizer=lambda p, nesterov=nesterov: optim.SGD(
                           p, LEARNING_RATE, momentum=0.9, nesterov=nesterov))


def rated_cases(dtype):
    """Rates by group. Of dense variables: torch decays rows without gradient too."""
    optim, decay = torch.optim, DECAY
    nesterov = dict(momentum=0.9, nesterov=True)
    coupled = dict(weight_decay=decay)
    for maximize in (False, True):
        rates = dict(coupled, maximize=maximize)
        yield dict(name=f"SGD, decay, maximize {maximize}", rule=SGD, sparse=False, dtype=dtype,
                   rates=rates, optimizer=lambda p, m=maximize: optim.SGD(
                       p, LEARNING_RATE, weight_decay=decay, maximize=m))
        yield dict(name=f"SGD, nesterov, decay, maximize {maximize}", rule=MOMENTUM, sparse=False,
                   dtype=dtype, fields=nesterov, rates=rates,
                   optimizer=lambda p, m=maximize: optim.SGD(
                       p, LEARNING_RATE, weight_decay=decay, maximize=m, **nesterov))
        yield dict(name=f"Adagrad, decay, maximize {maximize}", rule=ADAGRAD, sparse=False,
                   dtype=dtype, rates=rates, optimizer=lambda p, m=maximize: optim.Adagrad(
                       p, LEARNING_RATE, weight_decay=decay, maximize=m))
        yield dict(name=f"Adam, decay, maximize {maximize}", rule=ADAM, sparse=False, dtype=dtype,
                   rates=rates, optimizer=lambda p, m=maximize: optim.Adam(
                       p, LEARNING_RATE, weight_decay=decay, maximize=m))
        yield dict(name=f"AdamW, maximize {maximize}", rule=ADAM, sparse=False, dtype=dtype,
                   rates=dict(rates, decoupled=1), optimizer=lambda p, m=maximize: optim.AdamW(
                       p, LEARNING_RATE, weight_decay=decay, maximize=m))
    yield dict(name="SGD, maximize", rule=SGD, sparse=True, dtype=dtype, rates=dict(maximize=1),
               optimizer=lambda p: optim.SGD(p, LEARNING_RATE, maximize=True))
    yield dict(name="AdamW, the group's clip_norm 0.5", rule=ADAM, sparse=False, dtype=dtype,
               rates=dict(coupled, decoupled=1, clip_norm=0.5),
               optimizer=lambda p: optim.AdamW(p, LEARNING_RATE, weight_decay=decay))


def main():
    library = Library(sys.argv[1])
    failed = 0
    for case in cases():
        difference = largest_difference(library, case)
        # The learning rate is a float in the ABI: for doubles 0.05 differs in the eighth digit.
        bound = 2e-6 if case["dtype"] == F32 else 1e-14
        good = difference <= bound
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {'rows ' if case['sparse'] else 'dense'} "
              f"{'f64' if case['dtype'] == F64 else 'f32'} {case['name']}: {difference:.1e}")
    print(f"torch {torch.__version__}: {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    # What a float holds, so that PyTorch's double arithmetic sees the same rate.
    LEARNING_RATE = ctypes.c_float(LEARNING_RATE).value
    sys.exit(main())
