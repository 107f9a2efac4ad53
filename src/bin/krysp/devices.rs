//! `krysp devices`

use crate::{Failure, formats::Device, json::Json, machine, text};
use clap::Args;
use std::process::ExitCode;

/// Lists the devices that this program can use: the CPU and NVIDIA GPUs.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp devices
  krysp devices --measure          also the memory read bandwidth
  RAYON_NUM_THREADS=1 krysp devices")]
pub(crate) struct Devices {
    /// Measure the memory read bandwidth
    #[arg(long)]
    measure: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let host = machine::Host::here();
        let devices = if self.measure { Device::all() } else { vec![] };
        let measured = devices.iter().map(|device| Ok((device.name(), device.bandwidth()?)));
        let measured = measured.collect::<krysp::Result<Vec<_>>>()?;
        let read = |name: &str| measured.iter().find(|(device, _)| device == name).map(|(_, read)| *read);
        let gpus =
            machine::gpus().into_iter().enumerate().map(|(ordinal, gpu)| (format!("gpu:{ordinal}"), gpu));
        let gpus: Vec<_> = gpus.collect();
        if self.json {
            let gpu = |(device, gpu): &(String, machine::Gpu)| {
                Json::Object(vec![
                    ("name", gpu.name.clone().into()),
                    ("memory_bytes", gpu.memory.into()),
                    ("bandwidth_bytes_per_second", read(device).into()),
                ])
            };
            let host = Json::Object(vec![
                ("name", host.name.into()),
                ("threads", host.threads.into()),
                ("simd", host.simd.into()),
                ("bandwidth_bytes_per_second", read("cpu").into()),
            ]);
            println!(
                "{}",
                Json::Object(vec![("host", host), ("gpus", gpus.iter().map(gpu).collect::<Vec<_>>().into())])
            );
            return Ok(ExitCode::SUCCESS);
        }
        let line = |device: &str, words: &str| {
            text::line(device, words);
            if let Some(read) = read(device) {
                text::line("", &format!("reads {:.1} GB/s", read / 1e9));
            }
        };
        let threads = text::counted(host.threads, "thread");
        line("cpu", &format!("{}, {threads}, {}", host.name, host.simd));
        for (device, gpu) in &gpus {
            line(device, &format!("{}, {}", gpu.name, text::bytes(gpu.memory)));
        }
        if gpus.is_empty() {
            text::line("gpu", "none found");
        }
        Ok(ExitCode::SUCCESS)
    }
}
