//! Extensions of hellos (RFC 5246 §7.4.1.4), as a list of types with their bodies.

use std::borrow::Cow;

use wire::Reader;

use super::{vec8, vec16};
use crate::error::Failure;
use crate::put;

/// Maximum number of extensions in one hello. Browsers send up to 20.
const COUNT_MAX: usize = 64;

/// The type of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExtensionType(pub(crate) u16);

impl ExtensionType {
    /// Supported groups (RFC 8422 §5.1.1).
    pub(crate) const SUPPORTED_GROUPS: Self = Self(10);
    /// Point formats (RFC 8422 §5.1.2).
    pub(crate) const EC_POINT_FORMATS: Self = Self(11);
    /// Signature algorithms (RFC 5246 §7.4.1.4.1).
    pub(crate) const SIGNATURE_ALGORITHMS: Self = Self(13);
    /// SRTP profiles (RFC 5764 §4.1).
    pub(crate) const USE_SRTP: Self = Self(14);
    /// Extended master secret (RFC 7627 §5.1).
    pub(crate) const EXTENDED_MASTER_SECRET: Self = Self(23);
    /// Versions that a client supports, or the version that a server chose (RFC 8446 §4.2.1).
    pub(crate) const SUPPORTED_VERSIONS: Self = Self(43);
    /// Cookie of DTLS 1.3 (RFC 8446 §4.2.2).
    pub(crate) const COOKIE: Self = Self(44);
    /// Key shares (RFC 8446 §4.2.8).
    pub(crate) const KEY_SHARE: Self = Self(51);
    /// Secure renegotiation (RFC 5746 §3.2).
    pub(crate) const RENEGOTIATION_INFO: Self = Self(0xff01);
}

/// The extensions of a hello, in order; each type at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extensions<'a> {
    pub(crate) list: Vec<(ExtensionType, Cow<'a, [u8]>)>,
}

impl<'a> Extensions<'a> {
    /// Reads the rest of a hello: a list of extensions, or nothing.
    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, Failure> {
        if r.is_empty() {
            return Ok(Self::default());
        }
        let mut inner = Reader::new(vec16(r)?);
        let mut list: Vec<(ExtensionType, Cow<'a, [u8]>)> = Vec::new();
        while !inner.is_empty() {
            let kind = ExtensionType(inner.u16()?);
            let body = vec16(&mut inner)?;
            if list.len() >= COUNT_MAX || list.iter().any(|(known, _)| *known == kind) {
                return Err(Failure::Malformed);
            }
            list.push((kind, Cow::Borrowed(body)));
        }
        if r.is_empty() { Ok(Self { list }) } else { Err(Failure::Malformed) }
    }

    /// Writes the extensions at the end of a hello. Without extensions, writes nothing, not even an empty
    /// list (RFC 5246 §7.4.1.4 allows both).
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if !self.list.is_empty() {
            self.write_list(out);
        }
    }

    /// Returns a message that consists of the list of extensions, which may be empty.
    pub(crate) fn write_alone(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_list(&mut out);
        out
    }

    fn write_list(&self, out: &mut Vec<u8>) {
        let mut inner = Vec::new();
        for (kind, body) in &self.list {
            put::u16(&mut inner, kind.0);
            put::vec16(&mut inner, body);
        }
        put::vec16(out, &inner);
    }

    pub(crate) fn find(&self, kind: ExtensionType) -> Option<&[u8]> {
        self.list.iter().find(|(known, _)| *known == kind).map(|(_, body)| &**body)
    }

    /// True if the extension is present; its body must be empty.
    pub(crate) fn has_empty(&self, kind: ExtensionType) -> Result<bool, Failure> {
        match self.find(kind) {
            None => Ok(false),
            Some([]) => Ok(true),
            Some(_) => Err(Failure::Malformed),
        }
    }

    /// Replaces the body of an extension in place, or appends the extension.
    pub(crate) fn set(&mut self, kind: ExtensionType, body: Vec<u8>) {
        match self.list.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, old)) => *old = Cow::Owned(body),
            None => self.push(kind, body),
        }
    }

    pub(crate) fn push(&mut self, kind: ExtensionType, body: Vec<u8>) {
        self.list.push((kind, Cow::Owned(body)));
    }

    /// Checks `renegotiation_info`, which must be empty in a first handshake (RFC 5746 §3.4, §3.6). Returns
    /// true if it is present.
    pub(crate) fn check_renegotiation(&self) -> Result<bool, Failure> {
        let Some(body) = self.find(ExtensionType::RENEGOTIATION_INFO) else { return Ok(false) };
        let mut r = Reader::new(body);
        let info = vec8(&mut r)?;
        match (info.is_empty(), r.is_empty()) {
            (true, true) => Ok(true),
            (false, true) => Err(Failure::Renegotiation),
            (_, false) => Err(Failure::Malformed),
        }
    }
}

/// Reads a body that consists of a list of 16-bit numbers with a two-byte length. Fails if bytes follow.
pub(crate) fn read_numbers16(body: &[u8]) -> Result<Vec<u16>, Failure> {
    let mut r = Reader::new(body);
    let list = vec16(&mut r)?;
    if r.is_empty() { numbers(list) } else { Err(Failure::Malformed) }
}

/// Reads a body that consists of a list of 16-bit numbers with a one-byte length. Fails if bytes follow.
pub(crate) fn read_numbers8(body: &[u8]) -> Result<Vec<u16>, Failure> {
    let mut r = Reader::new(body);
    let list = vec8(&mut r)?;
    if r.is_empty() { numbers(list) } else { Err(Failure::Malformed) }
}

/// Reads one or more 16-bit numbers.
pub(crate) fn numbers(list: &[u8]) -> Result<Vec<u16>, Failure> {
    let (pairs, rest) = list.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(Failure::Malformed);
    }
    Ok(pairs.iter().copied().map(u16::from_be_bytes).collect())
}

/// Body of `use_srtp` (RFC 5764 §4.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UseSrtp<'a> {
    pub(crate) profiles: Vec<u16>,
    /// Master key identifier; ours is always empty.
    pub(crate) mki: &'a [u8],
}

impl<'a> UseSrtp<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let profiles = numbers(vec16(&mut r)?)?;
        let mki = vec8(&mut r)?;
        if r.is_empty() { Ok(Self { profiles, mki }) } else { Err(Failure::Malformed) }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put::vec16(&mut out, &put::numbers(self.profiles.iter().copied()));
        put::vec8(&mut out, self.mki);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Extensions<'_>, Failure> {
        Extensions::read(&mut Reader::new(bytes))
    }

    #[test]
    fn lists_are_read_as_written() {
        let mut extensions = Extensions::default();
        extensions.push(ExtensionType::EXTENDED_MASTER_SECRET, Vec::new());
        let srtp = UseSrtp { profiles: vec![7, 1], mki: b"x" };
        extensions.push(ExtensionType::USE_SRTP, srtp.write());
        let mut out = Vec::new();
        extensions.write(&mut out);
        let again = read(&out).unwrap();
        assert_eq!(again, extensions);
        assert_eq!(UseSrtp::read(again.find(ExtensionType::USE_SRTP).unwrap()), Ok(srtp));
        assert_eq!(again.has_empty(ExtensionType::EXTENDED_MASTER_SECRET), Ok(true));
        assert_eq!(again.has_empty(ExtensionType::USE_SRTP), Err(Failure::Malformed));
        for cut in 1..out.len() {
            assert_eq!(read(&out[..cut]), Err(Failure::Malformed));
        }
        assert_eq!(read(&[]), Ok(Extensions::default()));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let malformed = Err(Failure::Malformed);
        for (bytes, error) in [
            (&[0, 8, 0, 1, 0, 0, 0, 1, 0, 0][..], Failure::Malformed),
            (&[0, 4, 0, 1, 0, 1], Failure::Malformed),
            (&[0, 4, 0, 1, 0, 0, 9], Failure::Malformed),
        ] {
            assert_eq!(read(bytes), Err(error), "{bytes:?}");
        }
        let many: Vec<u8> = (0..65u8).flat_map(|kind| [0, kind, 0, 0]).collect();
        assert_eq!(read(&[&[1, 4][..], &many].concat()), malformed);
        for body in [&[][..], &[0, 0], &[0, 1, 5], &[0, 2, 5], &[0, 2, 5, 5, 5]] {
            assert_eq!(read_numbers16(body), Err(Failure::Malformed), "{body:?}");
        }
        for body in [&[][..], &[0], &[1, 5], &[2, 5], &[2, 5, 5, 5]] {
            assert_eq!(read_numbers8(body), Err(Failure::Malformed), "{body:?}");
        }
    }

    #[test]
    fn d_15_renegotiation_info() {
        for (body, verdict) in [
            (&[0][..], Ok(true)),
            (&[1, 9], Err(Failure::Renegotiation)),
            (&[], Err(Failure::Malformed)),
            (&[0, 0], Err(Failure::Malformed)),
        ] {
            let mut extensions = Extensions::default();
            extensions.push(ExtensionType::RENEGOTIATION_INFO, body.to_vec());
            assert_eq!(extensions.check_renegotiation(), verdict, "{body:?}");
        }
        assert_eq!(Extensions::default().check_renegotiation(), Ok(false));
    }
}
