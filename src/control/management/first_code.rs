//! The code required to create the first user, if `server.first_user_code` is set. The server logs the code at the
//! start. A local address is then not sufficient, since every process and web page on this machine has one.

use std::fmt;

use crypto::constant_time_eq;

/// Number of characters of a code.
pub(in crate::control) const CODE_CHARACTERS: usize = 16;

/// A code for this start; its `Debug` form is masked.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::control) struct FirstCode(String);

impl FirstCode {
    pub(in crate::control) const fn new(random: String) -> Self {
        Self(random)
    }

    /// Returns the code as text, for the log.
    pub(in crate::control) fn reveal(&self) -> &str {
        &self.0
    }

    /// True if `given` is the code.
    pub(in crate::control) fn fits(&self, given: &str) -> bool {
        constant_time_eq(self.0.as_bytes(), given.trim().as_bytes())
    }
}

impl fmt::Debug for FirstCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstCode(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_fits_itself_alone_and_is_not_printed() {
        let code = FirstCode::new("0123456789abcdef".to_owned());
        assert!(code.fits(code.reveal()) && code.fits(" 0123456789abcdef\n"));
        for wrong in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0"] {
            assert!(!code.fits(wrong), "{wrong}");
        }
        assert!(!format!("{code:?}").contains("0123"));
    }
}
