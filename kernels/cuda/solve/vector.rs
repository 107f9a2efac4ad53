//! Vector operations on a device. All are queued on the device's stream; none waits for the device.

use crate::cuda::device::error::Result;
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::module::{Constant, Source, mirror};
use crate::cuda::device::prelude::{PACK_BYTES, RawGate, RawNumber, RawSum};
use crate::cuda::device::{Array, Device, Real, lock};
use crate::cuda::matrix::columns::COLUMNS;
use crate::cuda::solve::gate;
use crate::cuda::solve::number::{Number, Scalar};
use crate::cuda::solve::sums::Sums;
use cudarc::driver::{CudaFunction, DeviceRepr};
use std::marker::PhantomData;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, ThreadId};

/// Number of columns of the kernels for a single column.
const ONE: usize = 1;

/// A file of kernels for launches of up to `$columns` columns.
macro_rules! source {
    ($file:literal, $of:literal, $columns:tt) => {
        Source {
            file: $file,
            text: concat!(include_str!("loop.cu"), "#line 1 \"", $of, "\"\n", include_str!($of)),
            constants: &[Constant::one("VECTORS", $columns as i64)],
            mirrors: &[
                mirror!("Operands" = RawOperands<f32> | RawOperands<f64> { vector, number, sum }),
                mirror!("Several" = [RawOperands<f32>; $columns] | [RawOperands<f64>; $columns] {}),
            ],
        }
    };
}

/// Kernels of simple operations.
pub(crate) const SOURCE: Source = source!("vector.cu", "vector.cu", ONE);
/// Kernels of fused operations, and of products with a diagonal.
pub(crate) const FUSED: Source = source!("fused.cu", "fused.cu", ONE);
/// [`SOURCE`] and [`FUSED`] for several columns.
pub(crate) const MANY: Source = source!("vector_many.cu", "vector.cu", COLUMNS);
/// See [`MANY`].
pub(crate) const FUSED_MANY: Source = source!("fused_many.cu", "fused.cu", COLUMNS);

/// The kernels, in the order of [`Kernel::NAMES`]; those before `Copy` do not check whether the solve has
/// ended (a gate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    FlipSigns,
    Dot,
    Dot2,
    Copy,
    Axpby,
    Axpbypcz,
    AxpyDot2,
    AxpyNorm,
    AxpyXpby,
    Multiply,
    MultiplyDot,
    AxpyMultiplyDot,
    ScaledMultiply,
    Relax,
}

impl Kernel {
    /// Names in the files, in the order of the kernels.
    const NAMES: [&str; 14] = [
        "flip_signs",
        "dot",
        "dot_2",
        "copy",
        "axpby",
        "axpbypcz",
        "axpy_dot_2",
        "axpy_norm",
        "axpy_xpby",
        "multiply",
        "multiply_dot",
        "axpy_multiply_dot",
        "scaled_multiply",
        "relax",
    ];
    /// The first kernel in [`FUSED`].
    const FUSED_FROM: usize = Kernel::AxpyDot2 as usize;

    fn checks_gate(self) -> bool {
        self as usize >= Kernel::Copy as usize
    }
}

/// Loaded kernels, for one column or for several.
#[derive(Debug)]
struct Kernels<T: Real> {
    functions: Vec<CudaFunction>,
    element: PhantomData<fn() -> T>,
}

impl<T: Real> Kernels<T> {
    /// The kernels of a device, loaded at first use.
    fn of(device: &Device, several: bool) -> Result<&Self> {
        let sources = if several { [&MANY, &FUSED_MANY] } else { [&SOURCE, &FUSED] };
        let load = |(at, name): (usize, &&str)| {
            device.function::<T>(sources[usize::from(at >= Kernel::FUSED_FROM)], name)
        };
        let new = || {
            let functions = Kernel::NAMES.iter().enumerate().map(load).collect::<Result<_>>()?;
            Ok(Kernels { functions, element: PhantomData })
        };
        at_first_use(&device.kept::<[OnceLock<Kernels<T>>; 2]>()[usize::from(several)], new)
    }
}

/// Operands of an operation on one column (one vector of a multivector), as passed to kernels. Unused ones
/// are zero.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawOperands<T> {
    vector: [u64; 4],
    number: [RawNumber<T>; 3],
    sum: RawSum,
}

/// The columns of a launch.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct RawSeveral<T, const N: usize>([RawOperands<T>; N]);
// SAFETY: has the layout of `Several` in loop.cu
unsafe impl<T: Real, const N: usize> DeviceRepr for RawSeveral<T, N> {}

/// An operation on several columns (vectors of a multivector), to be launched once for all of them.
#[derive(Debug)]
struct Operation<T> {
    kernel: Kernel,
    n: usize,
    columns: Vec<RawOperands<T>>,
    /// Scalars in use, kept so that their memory holds their values until the launch.
    numbers: Vec<Number<T>>,
}

/// Collects the columns of an operation from the calls of one thread.
#[derive(Debug)]
struct Collector<T> {
    thread: ThreadId,
    operation: Option<Operation<T>>,
}

/// The collector of a device, while a thread is in [`together`].
type Collecting<T> = Mutex<Option<Collector<T>>>;

/// Calls `work`, and launches consecutive equal operations together, for up to eight columns at a time.
/// Intended for the columns of a multivector, because launches of a small system take longer than the
/// operations on its vectors. `work` must call only functions of this module, none of which may read what
/// another one writes. Each column is processed by the same thread blocks as in a separate launch, so results
/// are bitwise the same.
///
/// Within a queued iteration, and in a team (GPUs that share vectors), every operation is launched
/// separately, because a gate and the counters of a team serve one column only.
pub fn together<T: Real, R>(device: &Device, work: impl FnOnce() -> R) -> R {
    let collecting = device.kept::<Collecting<T>>();
    let alone = device.team_address() != 0 || gate::step::<T>(device).control != 0;
    let mut collector = lock(collecting);
    if alone || collector.is_some() {
        drop(collector);
        return work();
    }
    *collector = Some(Collector { thread: thread::current().id(), operation: None });
    drop(collector);
    let end = End::<T> { device, element: PhantomData };
    let result = work();
    drop(end);
    result
}

/// Guard of [`together`]: when dropped, stops collecting and launches the collected operation.
struct End<'d, T: Real> {
    device: &'d Device,
    element: PhantomData<T>,
}

impl<T: Real> Drop for End<'_, T> {
    fn drop(&mut self) {
        let collector = lock(self.device.kept::<Collecting<T>>()).take();
        if let Some(operation) = collector.and_then(|collector| collector.operation) {
            self.device.store_error(operation.launch(self.device));
        }
    }
}

impl<T: Real> Operation<T> {
    fn launch(&self, device: &Device) -> Result<()> {
        match self.columns[..] {
            [column] => self.launch_with(device, &RawSeveral([column])),
            [first, ..] => {
                let column = |at: usize| *self.columns.get(at).unwrap_or(&first);
                self.launch_with(device, &RawSeveral::<T, COLUMNS>(std::array::from_fn(column)))
            }
            [] => Ok(()),
        }
    }

    fn launch_with<const N: usize>(&self, device: &Device, columns: &RawSeveral<T, N>) -> Result<()> {
        let function = &Kernels::<T>::of(device, N > 1)?.functions[self.kernel as usize];
        let (n, gate): (i64, Option<RawGate<T>>) =
            (self.n as i64, self.kernel.checks_gate().then(|| gate::gate(device)).transpose()?);
        let mut config = config_concurrent(device, self.n, 2 * PACK_BYTES / size_of::<T>());
        config.grid_dim.1 = self.columns.len() as u32;
        let mut launch = device.launch(function);
        if let Some(gate) = &gate {
            launch.arg(gate);
        }
        launch.arg(&n).arg(columns);
        // SAFETY: arguments as in vector.cu and fused.cu; all vectors hold `n` entries, and there is a column for each row of blocks
        unsafe { launch.launch(config) }
    }
}

/// Queues an operation on `n` entries at these addresses, or collects it. `sums` returns the output argument
/// of its sums and their scalars, given the index of the column in the launch.
fn queue<T: Real, R>(
    (device, n): (&Device, usize),
    kernel: Kernel,
    vectors: &[u64],
    numbers: &[&Scalar<T>],
    sums: impl FnOnce(&Device, usize) -> Result<(RawSum, R)>,
) -> Result<R> {
    let numbers: Vec<Number<T>> = numbers.iter().map(|number| number.number()).collect();
    let mut column = RawOperands {
        vector: [0; 4],
        number: [RawNumber::constant(T::zero()); 3],
        sum: Sums::<T, 1>::nowhere(),
    };
    column.vector.iter_mut().zip(vectors).for_each(|(to, &vector)| *to = vector);
    column.number.iter_mut().zip(&numbers).for_each(|(to, number)| *to = number.raw());
    let mut collector = lock(device.kept::<Collecting<T>>());
    let Some(collector) = collector.as_mut().filter(|own| own.thread == thread::current().id()) else {
        drop(collector);
        let (sum, result) = sums(device, 0)?;
        let columns = vec![RawOperands { sum, ..column }];
        Operation { kernel, n, columns, numbers }.launch(device)?;
        return Ok(result);
    };
    let fits = |other: &Operation<T>| other.kernel == kernel && other.n == n && other.columns.len() < COLUMNS;
    if let Some(other) = collector.operation.take_if(|other| !fits(other)) {
        other.launch(device)?;
    }
    let new = || Operation { kernel, n, columns: Vec::with_capacity(COLUMNS), numbers: vec![] };
    let operation = collector.operation.get_or_insert_with(new);
    let (sum, result) = sums(device, operation.columns.len())?;
    operation.columns.push(RawOperands { sum, ..column });
    operation.numbers.extend(numbers);
    Ok(result)
}

/// Queues an operation on vectors of one length that computes no sums. Keeps an error on the device, since it cannot be returned.
fn change<T: Real>(kernel: Kernel, vectors: &[&Array<T>], numbers: &[&Scalar<T>]) {
    let (device, vectors) = checked(vectors);
    device.0.store_error(queue(device, kernel, &vectors, numbers, |_, _| Ok((Sums::<T, 1>::nowhere(), ()))));
}

/// Queues an operation on vectors of one length that computes sums.
fn reduce<T: Real, const K: usize>(
    kernel: Kernel,
    vectors: &[&Array<T>],
    numbers: &[&Scalar<T>],
) -> [Scalar<T>; K] {
    let (device, vectors) = checked(vectors);
    let sums = |device: &Device, column| {
        let sums = Sums::<T, K>::of_column(device, column)?;
        Ok((sums.raw, sums.scalars()))
    };
    sums_or_nan(device.0, queue(device, kernel, &vectors, numbers, sums))
}

/// Returns the device and the length of vectors, which must be equal for all, and their addresses.
fn checked<'v, T: Real>(vectors: &[&'v Array<T>]) -> ((&'v Device, usize), Vec<u64>) {
    let first = vectors[0];
    for x in vectors {
        assert_eq!(x.len(), first.len(), "vectors of one length");
        assert!(x.device() == first.device(), "vectors of one device");
    }
    ((first.device(), first.len()), vectors.iter().map(|x| x.address(0)).collect())
}

/// The scalars of a sum; NaN if queueing failed (the error is stored on the device).
pub(crate) fn sums_or_nan<T: Real, const K: usize>(
    device: &Device,
    outcome: Result<[Scalar<T>; K]>,
) -> [Scalar<T>; K] {
    outcome.unwrap_or_else(|error| {
        device.store_error(Err(error));
        [(); K].map(|()| Scalar::constant(T::nan()))
    })
}

/// `y ← x`
pub fn copy<T: Real>(x: &Array<T>, y: &mut Array<T>) {
    change(Kernel::Copy, &[x, y], &[]);
}

/// `y ← x[first..first + y.len()]`
pub(crate) fn copy_from<T: Real>(x: &Array<T>, first: usize, y: &Array<T>) -> Result<()> {
    assert!(x.device() == y.device() && first + y.len() <= x.len(), "a part of an array on the same device");
    let vectors = [x.address(first), y.address(0)];
    queue::<T, ()>((y.device(), y.len()), Kernel::Copy, &vectors, &[], |_, _| {
        Ok((Sums::<T, 1>::nowhere(), ()))
    })
}

/// Negates about half of the entries, pseudo-randomly.
pub fn flip_signs<T: Real>(x: &mut Array<T>) -> Result<()> {
    let ((device, n), vectors) = checked(&[&*x]);
    queue::<T, ()>((device, n), Kernel::FlipSigns, &vectors, &[], |_, _| Ok((Sums::<T, 1>::nowhere(), ())))
}

/// `y ← a x + b y`; if `b` is zero, `y` is overwritten without being read.
pub fn axpby<T: Real>(a: &Scalar<T>, x: &Array<T>, b: &Scalar<T>, y: &mut Array<T>) {
    change(Kernel::Axpby, &[x, y], &[a, b]);
}

/// `z ← a x + b y + c z`; if `c` is zero, `z` is overwritten without being read.
pub fn axpbypcz<T: Real>(
    a: &Scalar<T>,
    x: &Array<T>,
    b: &Scalar<T>,
    y: &Array<T>,
    c: &Scalar<T>,
    z: &mut Array<T>,
) {
    change(Kernel::Axpbypcz, &[x, y, z], &[a, b, c]);
}

/// `⟨x, y⟩`
pub fn dot<T: Real>(x: &Array<T>, y: &Array<T>) -> Scalar<T> {
    let [xy] = reduce(Kernel::Dot, &[x, y], &[]);
    xy
}

/// `[⟨x, y⟩, ⟨x, z⟩]`
pub fn dot_2<T: Real>(x: &Array<T>, y: &Array<T>, z: &Array<T>) -> [Scalar<T>; 2] {
    reduce(Kernel::Dot2, &[x, y, z], &[])
}

/// `r ← r + a x; [‖r‖², ⟨r, y⟩]`
pub fn axpy_dot_2<T: Real>(a: &Scalar<T>, x: &Array<T>, y: &Array<T>, r: &mut Array<T>) -> [Scalar<T>; 2] {
    reduce(Kernel::AxpyDot2, &[x, y, r], &[a])
}

/// `r ← r + a x; ‖r‖²`
pub fn axpy_norm<T: Real>(a: &Scalar<T>, x: &Array<T>, r: &mut Array<T>) -> Scalar<T> {
    let [norm] = reduce(Kernel::AxpyNorm, &[x, r], &[a]);
    norm
}

/// `x ← x + a p; p ← z + b p`
pub fn axpy_xpby<T: Real>(a: &Scalar<T>, p: &mut Array<T>, z: &Array<T>, b: &Scalar<T>, x: &mut Array<T>) {
    change(Kernel::AxpyXpby, &[p, z, x], &[a, b]);
}

/// `y ← d x`, elementwise.
pub fn multiply<T: Real>(d: &Array<T>, x: &Array<T>, y: &mut Array<T>) {
    change(Kernel::Multiply, &[d, x, y], &[]);
}

/// `x ← a d b`, elementwise: the first sweep of a smoother with weight `a` and inverse diagonal `d`, from zero.
pub fn scaled_multiply<T: Real>(a: T, d: &Array<T>, b: &Array<T>, x: &mut Array<T>) {
    change(Kernel::ScaledMultiply, &[d, b, x], &[&Scalar::constant(a)]);
}

/// `x ← x + a d (b − t)`, elementwise: a sweep of a smoother with weight `a` and inverse diagonal `d`, given `t = A x`.
pub fn relax<T: Real>(a: T, d: &Array<T>, b: &Array<T>, t: &Array<T>, x: &mut Array<T>) {
    change(Kernel::Relax, &[d, b, t, x], &[&Scalar::constant(a)]);
}

/// `y ← d x; ⟨x, y⟩`, where `d x` is elementwise.
pub fn multiply_dot<T: Real>(d: &Array<T>, x: &Array<T>, y: &mut Array<T>) -> Scalar<T> {
    let [xy] = reduce(Kernel::MultiplyDot, &[d, x, y], &[]);
    xy
}

/// `r ← r + a q; z ← d r; [‖r‖², ⟨r, z⟩]`, where `d r` is elementwise.
pub fn axpy_multiply_dot<T: Real>(
    a: &Scalar<T>,
    q: &Array<T>,
    d: &Array<T>,
    r: &mut Array<T>,
    z: &mut Array<T>,
) -> [Scalar<T>; 2] {
    reduce(Kernel::AxpyMultiplyDot, &[q, d, r, z], &[a])
}
