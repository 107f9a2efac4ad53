//! Names of devices and formats, and measurements of a matrix in every format on a device.

use crate::bandwidth::{self, best_time};
use crate::{Failure, text};
use krysp::formats::extend::{Coefficients, Offered};
use krysp::{Csr, Format, choice::Model};
use std::time::Instant;

macro_rules! names {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => { [$(stringify!($format),)*] };
}

/// Names of the Rust types of all formats.
pub(crate) const NAMES: &[&str] = &krysp::each_format!(names);

/// Help text of an option, with the formats that it accepts.
pub(crate) fn help(what: &str) -> String {
    format!("{what}: {}", NAMES.join(", "))
}

/// Help text of an option, with the formats that a solve can use on some device.
pub(crate) fn help_offered(what: &str) -> String {
    fn is_offered<F: Offered<f64>>() -> bool {
        let refused = |model: &Coefficients| matches!(model, Coefficients::NotOffered(_));
        F::variants().iter().any(|variant| !refused(&variant.host) || !refused(&variant.gpu))
    }
    macro_rules! offered {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            [$(is_offered::<krysp::$format<f64>>().then_some(stringify!($format)),)*]
        };
    }
    let names: Vec<&str> = krysp::each_format!(offered).into_iter().flatten().collect();
    format!("{what}: {}", names.join(", "))
}

/// The name of the Rust type of a format, from any spelling of its name.
pub(crate) fn known(wanted: &str) -> Result<&'static str, Failure> {
    let found = NAMES.iter().copied().find(|name| krysp::choice::is_format(name, wanted));
    found.ok_or_else(|| format!("unknown format {wanted:?}: expected one of {}", NAMES.join(", ")).into())
}

/// The measurements of a format on a device.
pub(crate) struct Measured {
    pub(crate) format: String,
    /// Bytes of the matrix that one matrix-vector product reads.
    pub(crate) bytes: usize,
    /// Seconds of the conversion.
    pub(crate) conversion: f64,
    /// Seconds of a matrix-vector product.
    pub(crate) product: f64,
}

/// An available device.
pub(crate) enum Device {
    Host,
    #[cfg(feature = "cuda")]
    Gpu(krysp::Cuda),
}

impl Device {
    /// The CPU, and every GPU that can be used.
    pub(crate) fn all() -> Vec<Device> {
        #[allow(unused_mut)]
        let mut all = vec![Device::Host];
        #[cfg(feature = "cuda")]
        all.extend(
            (0..krysp::Cuda::devices().len()).filter_map(|k| Some(Device::Gpu(krysp::Cuda::new(k).ok()?))),
        );
        all
    }

    /// The device with the name `name`: cpu, gpu, gpu:1.
    pub(crate) fn named(name: &str) -> Result<Device, Failure> {
        if name == "cpu" {
            return Ok(Device::Host);
        }
        #[cfg(not(feature = "cuda"))]
        return Err(format!("{}; this program was built without the feature `cuda`", unknown(name)).into());
        #[cfg(feature = "cuda")]
        {
            let ordinal = match name.strip_prefix("gpu").or_else(|| name.strip_prefix("cuda")) {
                Some("") => Some(0),
                Some(ordinal) => ordinal.strip_prefix(':').and_then(|ordinal| ordinal.parse().ok()),
                None => None,
            };
            let ordinal = ordinal.ok_or_else(|| unknown(name))?;
            let present = krysp::Cuda::devices().len();
            if ordinal >= present {
                let gpus = text::counted(present, "GPU");
                return Err(format!("--device {name}: found {gpus}; `krysp devices` lists them").into());
            }
            Ok(Device::Gpu(krysp::Cuda::new(ordinal)?))
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Device::Host => "cpu".into(),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => format!("gpu:{}", gpu.ordinal()),
        }
    }

    /// The kind of machine that the device is, for estimates.
    pub(crate) fn model(&self) -> Model {
        match self {
            Device::Host => Model::Host,
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => Model::Gpu { multiprocessors: gpu.multiprocessors() },
        }
    }

    /// The measured memory read bandwidth in bytes per second.
    pub(crate) fn bandwidth(&self) -> krysp::Result<f64> {
        match self {
            Device::Host => bandwidth::of_host(),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => bandwidth::of_gpu(gpu),
        }
    }

    /// Measures every format that can store the matrix, the fastest first. Formats that store one triangle are included if the
    /// matrix is symmetric.
    pub(crate) fn measure(&self, a: &Csr<f64>) -> krysp::Result<Vec<Measured>> {
        let mut all = match self {
            Device::Host => on_host(a)?,
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => on_gpu(a, gpu)?,
        };
        all.sort_by(|one, other| one.product.total_cmp(&other.product));
        Ok(all)
    }
}

fn unknown(device: &str) -> String {
    format!(
        "--device must be cpu, gpu or cuda, gpu:0, gpu:1, ..., and for `solve` also auto; got {device}; `krysp devices` \
         lists the devices"
    )
}

fn on_host(a: &Csr<f64>) -> krysp::Result<Vec<Measured>> {
    fn measured<F: Format<f64>>(a: &Csr<f64>) -> krysp::Result<Option<Measured>> {
        let started = Instant::now();
        let Ok(format) = F::new(a) else { return Ok(None) };
        let conversion = started.elapsed().as_secs_f64();
        let product = best_time(&format, &|| Ok(()))?;
        Ok(Some(Measured { format: F::NAME.into(), bytes: format.bytes(), conversion, product }))
    }
    macro_rules! measure {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            [$(measured::<krysp::$format<f64>>(a)?,)*]
        };
    }
    Ok(krysp::each_format!(measure).into_iter().flatten().collect())
}

#[cfg(feature = "cuda")]
fn on_gpu(a: &Csr<f64>, gpu: &krysp::Cuda) -> krysp::Result<Vec<Measured>> {
    use krysp::LinearOperator;
    use krysp::formats::OnDevice;
    fn measured<F: OnDevice<f64>>(a: &Csr<f64>, gpu: &krysp::Cuda) -> krysp::Result<Option<Measured>> {
        // not timed: the first conversion compiles kernels
        if F::on(gpu, a).is_err() {
            return Ok(None);
        }
        let started = Instant::now();
        let format = F::on(gpu, a)?;
        gpu.synchronize()?;
        let conversion = started.elapsed().as_secs_f64();
        let product = best_time(&format, &|| gpu.synchronize())?;
        Ok(Some(Measured { format: F::NAME.into(), bytes: format.bytes(), conversion, product }))
    }
    macro_rules! measure {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {{
            let mut all = vec![];
            $(krysp::where_on_gpu!($memory, all.extend(measured::<krysp::$format<f64>>(a, gpu)?););)*
            all
        }};
    }
    Ok(krysp::each_format!(measure))
}
