//! Shell completions and manual pages, generated from the command-line options.

use crate::{Cli, Failure};
use clap::{Args, CommandFactory};
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints completions for a shell.
///
///   krysp completions bash > ~/.local/share/bash-completion/completions/krysp
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell: bash, elvish, fish, powershell or zsh
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        clap_complete::generate(self.shell, &mut Cli::command(), "krysp", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes manual pages, one for each subcommand.
///
///   krysp manual ~/.local/share/man/man1
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Manual {
    /// Folder for the pages; created if it does not exist
    folder: PathBuf,
}

impl Manual {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        std::fs::create_dir_all(&self.folder)?;
        clap_mangen::generate_to(Cli::command(), &self.folder)?;
        Ok(ExitCode::SUCCESS)
    }
}
