//! The time at which a chain of certificates stops being valid (RFC 5280 §4.1.2.5), for metrics and the panel. Only
//! dates are read here. rustls judges everything else.
//!
//! ```text
//! Certificate    SEQUENCE { tbsCertificate, signatureAlgorithm, signature }
//! tbsCertificate SEQUENCE { [0] version OPTIONAL, serialNumber, signature, issuer, validity, .. }
//! validity       SEQUENCE { notBefore, notAfter }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::CertificateDer;
use wire::Reader;

use crate::types::Civil;

const SEQUENCE: u8 = 0x30;
/// Tag of the version. Certificates of version 1 do not have this element.
const VERSION: u8 = 0xa0;
/// Tags of the two forms of a date: with a two-digit or a four-digit year.
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Value for an unknown time.
const UNKNOWN: u64 = u64::MAX;

/// Time at which the certificate in use expires, in Unix milliseconds. It is shared by the thread that loads the
/// certificate and the thread that reports the time.
#[derive(Debug, Clone)]
pub(in crate::io) struct Expiry(Arc<AtomicU64>);

impl Expiry {
    pub(in crate::io) fn new(unix_ms: Option<u64>) -> Self {
        Self(Arc::new(AtomicU64::new(unix_ms.unwrap_or(UNKNOWN))))
    }

    pub(in crate::io) fn set(&self, unix_ms: Option<u64>) {
        self.0.store(unix_ms.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Returns the time; `None` if it could not be read.
    pub(in crate::io) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|unix_ms| *unix_ms != UNKNOWN)
    }
}

/// Returns the earliest time at which a certificate of the chain expires, in Unix milliseconds.
pub(super) fn of_chain(chain: &[CertificateDer<'_>]) -> Option<u64> {
    chain.iter().filter_map(|certificate| not_after_ms(certificate)).min()
}

fn not_after_ms(certificate: &[u8]) -> Option<u64> {
    let mut certificate = element(&mut Reader::new(certificate), SEQUENCE)?;
    let mut signed = element(&mut certificate, SEQUENCE)?;
    let (first, _) = any_element(&mut signed)?;
    // Skip the optional version, the serial number, the algorithm and the issuer.
    for _ in 0..if first == VERSION { 3 } else { 2 } {
        any_element(&mut signed)?;
    }
    let mut validity = element(&mut signed, SEQUENCE)?;
    any_element(&mut validity)?;
    let (kind, mut date) = any_element(&mut validity)?;
    date_ms(kind, date.rest())
}

/// Reads an element that must have this tag.
fn element<'a>(from: &mut Reader<'a>, wanted: u8) -> Option<Reader<'a>> {
    any_element(from).filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
}

/// Reads the next element: its tag and content (X.690 §8.1).
fn any_element<'a>(from: &mut Reader<'a>) -> Option<(u8, Reader<'a>)> {
    let tag = from.u8().ok()?;
    let length = match from.u8().ok()? {
        short @ 0..=0x7f => usize::from(short),
        0x81 => usize::from(from.u8().ok()?),
        0x82 => usize::from(from.u16().ok()?),
        0x83 => usize::try_from(from.u24().ok()?).ok()?,
        _ => return None,
    };
    Some((tag, from.sub(length).ok()?))
}

/// Reads a date in UTC, with seconds and without fractions, as RFC 5280 requires.
fn date_ms(kind: u8, text: &[u8]) -> Option<u64> {
    let (digits, zone) = text.split_last_chunk::<1>()?;
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|c| c.is_ascii_digit()))?;
    let (year, rest) = match (kind, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (year + if year < 50 { 2000 } else { 1900 }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let pair = |at: usize| rest.get(at..at.checked_add(2)?)?.parse::<u64>().ok();
    let civil = Civil {
        year,
        month: pair(0)?,
        day: pair(2)?,
        hour: pair(4)?,
        minute: pair(6)?,
        second: pair(8)?,
        millis: 0,
    };
    (zone == b"Z").then(|| civil.unix_ms()).flatten()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_chain_expires_with_its_first_certificate() {
        // A certificate writes the year 2031 with two digits and 2050 with four.
        let (soon, late) = (certificate(2031, 3, 1), certificate(2050, 1, 1));
        let (soon_ms, late_ms) = (1_930_089_600_000, 2_524_608_000_000);
        assert_eq!(of_chain(std::slice::from_ref(&late)), Some(late_ms));
        assert_eq!(of_chain(&[late, soon]), Some(soon_ms));
        assert_eq!(of_chain(&[CertificateDer::from(vec![0x30, 0])]), None);
    }

    #[test]
    fn c_03_what_is_no_certificate_has_no_date() {
        let whole = certificate(2031, 3, 1);
        for end in 0..whole.len() {
            // The bytes after the dates are not read, but every length before them must be correct.
            assert!(not_after_ms(&whole[..end]).is_none(), "{end}");
        }
        for (kind, text) in [
            (UTC_TIME, "310301000000"),
            (UTC_TIME, "3103010000Z"),
            (UTC_TIME, "311301000000Z"),
            (UTC_TIME, "310230000000Z"),
            (UTC_TIME, "20310301000000Z"),
            (GENERALIZED_TIME, "20310301000000+0100"),
            (GENERALIZED_TIME, "2031030100000xZ"),
            (0x0c, "310301000000Z"),
        ] {
            assert_eq!(date_ms(kind, text.as_bytes()), None, "{text}");
        }
        assert_eq!(date_ms(UTC_TIME, b"700101000001Z"), Some(1000));
    }

    #[test]
    fn an_expiry_is_what_was_set_last() {
        let expiry = Expiry::new(None);
        assert_eq!(expiry.get(), None);
        expiry.clone().set(Some(7));
        assert_eq!(expiry.get(), Some(7));
    }
}
