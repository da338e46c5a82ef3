//! Bearer tokens (RFC 6750): only their hashes are kept, and comparing takes as long for a wrong one as for a right one.

use super::settings::{Scope, Token};
use crate::error::{Error, Kind, Result};
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

/// Characters that a token has at least: enough that nobody guesses it, at the rate at which peers may ask.
const LEAST: usize = 16;

/// Those that are allowed in.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(Vec<Known>);

#[derive(Clone, Debug)]
struct Known {
    hash: [u8; 32],
    control: bool,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// Nothing: no token, or one that nobody knows.
    Nothing,
    /// See.
    Read,
    /// See and steer.
    Control,
}

impl May {
    pub fn allows(self, scope: Scope) -> bool {
        match scope {
            Scope::Read => self != May::Nothing,
            Scope::Control => self == May::Control,
        }
    }
}

impl Tokens {
    /// Reads their files.
    ///
    /// # Errors
    /// A file cannot be read or holds no token; a hash is none.
    pub fn read(tokens: &[Token]) -> Result<Self> {
        let mut known = Vec::with_capacity(tokens.len());
        for token in tokens {
            let hash = match (&token.file, &token.sha256) {
                (Some(file), _) => {
                    let text = std::fs::read_to_string(file).map_err(|error| {
                        Error::new(
                            Kind::Unavailable,
                            format!("the token {:?} cannot be read from {}", token.name, file.display()),
                        )
                        .because(error)
                        .cure("make the file, readable for the daemon's user alone: head -c 24 /dev/urandom | base64")
                    })?;
                    let text = text.trim();
                    if text.len() < LEAST || !text.bytes().all(|b| b.is_ascii_graphic()) {
                        let what = format!("{} holds no token", file.display());
                        return Err(Error::new(Kind::Data, what).cure(format!(
                            "one line of at least {LEAST} letters, digits and signs: head -c 24 /dev/urandom | base64"
                        )));
                    }
                    hashed(text)
                }
                (None, Some(text)) => hexadecimal(text).ok_or_else(|| {
                    Error::new(Kind::Data, format!("the token {:?} has a sha256 that is none", token.name))
                        .cure("64 hexadecimal digits, as `printf %s TOKEN | sha256sum` writes them")
                })?,
                (None, None) => {
                    let what = format!("the token {:?} needs either file or sha256", token.name);
                    return Err(Error::new(Kind::Usage, what));
                }
            };
            known.push(Known { hash, control: token.scopes.contains(&Scope::Control) });
        }
        Ok(Tokens(known))
    }

    /// What the value of a header `Authorization` allows. Without tokens everybody may everything, see
    /// [`super::Settings::check`].
    pub fn allow(&self, authorization: Option<&str>) -> May {
        if self.0.is_empty() {
            return May::Control;
        }
        let given = authorization.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| hashed(token.trim()))
        });
        let Some(given) = given else { return May::Nothing };
        let mut may = May::Nothing;
        // All of them, whichever it is.
        for known in &self.0 {
            if bool::from(known.hash.ct_eq(&given)) {
                may = if known.control { May::Control } else { May::Read };
            }
        }
        may
    }
    /// Is one needed?
    pub fn needed(&self) -> bool {
        !self.0.is_empty()
    }
}

fn hashed(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let octets: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    if rest.is_empty() { octets.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf %s abc | sha256sum`: FIPS 180-2, B.1.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn token(name: &str, file: Option<&std::path::Path>, sha256: Option<&str>, scopes: &[Scope]) -> Token {
        Token { name: name.into(), file: file.map(Into::into), sha256: sha256.map(Into::into), scopes: scopes.to_vec() }
    }

    #[test]
    fn who_may_what() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wall");
        std::fs::write(&file, "a-token-that-only-reads\n").unwrap();
        let tokens = Tokens::read(&[
            token("wall", Some(&file), None, &[Scope::Read]),
            token("operators", None, Some(&ABC.to_uppercase()), &[Scope::Control]),
        ])
        .unwrap();
        assert!(tokens.needed());
        assert_eq!(tokens.allow(None), May::Nothing);
        for (value, may) in [
            ("Bearer a-token-that-only-reads", May::Read),
            ("bearer  a-token-that-only-reads ", May::Read),
            ("Bearer abc", May::Control),
            ("Bearer abd", May::Nothing),
            ("Bearer", May::Nothing),
            ("Bearer ", May::Nothing),
            ("Basic abc", May::Nothing),
            ("abc", May::Nothing),
            ("", May::Nothing),
        ] {
            assert_eq!(tokens.allow(Some(value)), may, "{value}");
        }
        assert_eq!([May::Nothing, May::Read, May::Control].map(|may| may.allows(Scope::Read)), [false, true, true]);
        assert_eq!([May::Nothing, May::Read, May::Control].map(|may| may.allows(Scope::Control)), [false, false, true]);
        assert_eq!(Tokens::default().allow(None), May::Control);
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for text in ["", "short", "with spaces, and long enough", "fünfzehn-zeichen-und-mehr"] {
            std::fs::write(&file, text).unwrap();
            let error = Tokens::read(&[token("n", Some(&file), None, &[Scope::Read])]).unwrap_err();
            assert!(error.to_string().contains("holds no token"), "{error}");
        }
        let error = Tokens::read(&[token("n", Some(&folder.path().join("none")), None, &[Scope::Read])]).unwrap_err();
        assert!(error.to_string().contains("cannot be read from"), "{error}");
        for hash in ["", "abc", &ABC[..63], &format!("{ABC}00"), &ABC.replace('b', "g")] {
            let error = Tokens::read(&[token("n", None, Some(hash), &[Scope::Read])]).unwrap_err();
            assert!(error.to_string().contains("sha256 that is none"), "{error}");
        }
    }
}
