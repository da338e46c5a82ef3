//! `gdmedia xdp-helper`: hands AF_XDP sockets to receivers that run without rights.

use super::stop;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::rx::xdp::helper::Helper;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// Unix socket that receivers connect to, with `--xdp helper=PATH`
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// User who may connect, by name or number, besides root; may be given several times
    #[arg(long, value_name = "USER")]
    allow: Vec<String>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = stop::install()?;
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let users = args.allow.iter().map(|user| number(user, &accounts)).collect::<Result<Vec<u32>>>()?;
    Helper::open(&args.path, &users)?.serve(&stop);
    Ok(ExitCode::SUCCESS)
}

/// A user's number: itself, or that of a name in the text of /etc/passwd.
fn number(user: &str, accounts: &str) -> Result<u32> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == user).then(|| fields.nth(1)?.parse().ok())?
    };
    user.parse().ok().or_else(|| accounts.lines().find_map(of)).ok_or_else(|| {
        Error::new(Kind::Usage, format!("there is no user {user} in /etc/passwd"))
            .cure("name the user by number (id -u)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_or_numbered() {
        let accounts = "root:x:0:0:root:/root:/bin/bash\nvideo:x:1007:44::/:/bin/false\nbroken\n";
        assert_eq!((number("video", accounts).unwrap(), number("1001", accounts).unwrap()), (1007, 1001));
        assert_eq!(number("nobody", accounts).unwrap_err().kind(), Kind::Usage);
        assert!(number("x", accounts).is_err());
    }
}
