//! Man pages and completions, from the command line itself: for packages.

use clap::Command;
use clap_complete::Shell;
use gdmedia::error::{Error, Kind, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where man pages are written to.
#[derive(clap::Args)]
pub struct Man {
    /// A folder; made where it is not there
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// Where completions are written to.
#[derive(clap::Args)]
pub struct Completions {
    /// A folder; made where it is not there
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// `gdmedia.1`, and `gdmedia-VERB.1` for each verb.
pub fn man(args: &Man, command: Command) -> Result<ExitCode> {
    made(&args.to)?;
    clap_mangen::generate_to(command, &args.to).map_err(|error| cannot(&args.to, error))?;
    Ok(ExitCode::SUCCESS)
}

/// For bash (`gdmedia`), zsh (`_gdmedia`) and fish (`gdmedia.fish`).
pub fn completions(args: &Completions, mut command: Command) -> Result<ExitCode> {
    made(&args.to)?;
    for (shell, name) in [(Shell::Bash, "gdmedia"), (Shell::Zsh, "_gdmedia"), (Shell::Fish, "gdmedia.fish")] {
        let path = args.to.join(name);
        let mut file = File::create(&path).map_err(|error| cannot(&path, error))?;
        // What cannot be written is found here; `generate` itself would panic.
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "gdmedia", &mut text);
        std::io::Write::write_all(&mut file, &text).map_err(|error| cannot(&path, error))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn made(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| cannot(folder, error))
}

fn cannot(path: &Path, error: std::io::Error) -> Error {
    Error::new(Kind::Output, format!("{} cannot be written", path.display()))
        .because(error)
        .cure("choose another folder with --to")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_verb_has_a_page_and_every_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        let command = super::super::Cli::command();
        let to = folder.path().join("a/b");
        man(&Man { to: to.clone() }, command.clone()).unwrap();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let page = fs::read_to_string(to.join(format!("gdmedia-{}.1", verb.get_name()))).unwrap();
            assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{}", verb.get_name());
        }
        assert!(fs::read_to_string(to.join("gdmedia.1")).unwrap().contains("SMPTE ST 2110"));
        completions(&Completions { to: to.clone() }, command).unwrap();
        for file in ["gdmedia", "_gdmedia", "gdmedia.fish"] {
            let text = fs::read_to_string(to.join(file)).unwrap();
            assert!(text.contains("analyze") && text.contains("redundancy"), "{file}");
        }
        let file = to.join("gdmedia");
        let error = man(&Man { to: file.join("below") }, super::super::Cli::command()).unwrap_err();
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
}
