//! `krysp devices`

use crate::{Failure, bandwidth, json::Json, machine, text};
use clap::Args;
use std::process::ExitCode;

/// Lists where this program can compute: the processor, and GPUs of NVIDIA.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp devices
  krysp devices --measure          also how fast memory is read
  RAYON_NUM_THREADS=1 krysp devices")]
pub(crate) struct Devices {
    /// Measure how fast memory is read
    #[arg(long)]
    measure: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let host = machine::Host::here();
        let read = if self.measure { Some(bandwidth::of_host()?) } else { None };
        let gpus = machine::gpus();
        if self.json {
            let gpus: Vec<Json> = gpus
                .iter()
                .map(|gpu| {
                    let memory = gpu.memory.into();
                    Json::Object(vec![("name", gpu.name.clone().into()), ("memory_bytes", memory)])
                })
                .collect();
            let host = Json::Object(vec![
                ("name", host.name.into()),
                ("threads", host.threads.into()),
                ("simd", host.simd.into()),
                ("bandwidth_bytes_per_second", read.into()),
            ]);
            println!("{}", Json::Object(vec![("host", host), ("gpus", gpus.into())]));
            return Ok(ExitCode::SUCCESS);
        }
        let threads = text::counted(host.threads, "thread");
        text::line("cpu", &format!("{}, {threads}, {}", host.name, host.simd));
        if let Some(read) = read {
            text::line("", &format!("reads {:.1} GB/s", read / 1e9));
        }
        for (ordinal, gpu) in gpus.iter().enumerate() {
            text::line(&format!("gpu {ordinal}"), &format!("{}, {}", gpu.name, text::bytes(gpu.memory)));
        }
        if gpus.is_empty() {
            text::line("gpu", "none found");
        }
        Ok(ExitCode::SUCCESS)
    }
}
