//! `INIT` and `INIT ACK` (RFC 9260 §3.3.2, §3.3.3).

use wire::{Reader, Writer};

use crate::packet::{chunk, next_parameter, parameter, write_parameter};

/// Minimum window that a peer may announce (§3.3.2).
const WINDOW_BYTES_MIN: u32 = 1500;
/// Maximum number of parameters read.
const PARAMETERS_MAX: usize = 64;
/// Maximum size of the unknown parameters that are reported, in bytes.
const REPORT_BYTES_MAX: usize = 256;

/// Extensions, which are only used if both sides support them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extensions {
    /// True if partial reliability is supported (RFC 3758).
    pub(crate) forward_tsn: bool,
    /// True if the reset of streams is supported (RFC 6525).
    pub(crate) reset: bool,
}

/// The fixed part of the chunk, and the known parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Init<'a> {
    pub(crate) tag: u32,
    pub(crate) window: u32,
    pub(crate) outgoing: u16,
    pub(crate) incoming: u16,
    pub(crate) tsn: u32,
    pub(crate) extensions: Extensions,
    pub(crate) cookie: Option<&'a [u8]>,
}

impl<'a> Init<'a> {
    /// Reads the value of a chunk. Unknown parameters that the sender wants reported are appended to `unknown`.
    pub(crate) fn read(value: &'a [u8], unknown: &mut Vec<u8>) -> Option<Self> {
        let mut reader = Reader::new(value);
        let mut init = Self {
            tag: reader.u32().ok()?,
            window: reader.u32().ok()?,
            outgoing: reader.u16().ok()?,
            incoming: reader.u16().ok()?,
            tsn: reader.u32().ok()?,
            extensions: Extensions::default(),
            cookie: None,
        };
        // §3.3.2: tag and stream counts must not be zero, nor the window below its minimum.
        if init.tag == 0 || init.outgoing == 0 || init.incoming == 0 || init.window < WINDOW_BYTES_MIN {
            return None;
        }
        let mut rest = reader.rest();
        for _ in 0..PARAMETERS_MAX {
            let Some(found) = next_parameter(&mut rest) else { break };
            match found.kind {
                parameter::STATE_COOKIE => init.cookie = Some(found.value),
                parameter::FORWARD_TSN_SUPPORTED => init.extensions.forward_tsn = true,
                parameter::SUPPORTED_EXTENSIONS => {
                    init.extensions.reset |= found.value.contains(&chunk::RE_CONFIG);
                    init.extensions.forward_tsn |= found.value.contains(&chunk::FORWARD_TSN);
                }
                // §3.2.1: the upper two bits specify how to handle an unknown parameter.
                kind => {
                    let fits = unknown.len().saturating_add(found.value.len()) <= REPORT_BYTES_MAX;
                    if kind & 0x4000 != 0 && fits {
                        let mut report = Vec::new();
                        write_parameter(&mut report, kind, found.value);
                        write_parameter(unknown, parameter::UNRECOGNIZED, &report);
                    }
                    if kind & 0x8000 == 0 && !is_address(kind) {
                        break;
                    }
                }
            }
        }
        Some(init)
    }

    /// Returns the value of a chunk.
    pub(crate) fn write(&self, unknown: &[u8]) -> Vec<u8> {
        let mut fixed = Writer::new();
        fixed.u32(self.tag).u32(self.window).u16(self.outgoing).u16(self.incoming).u32(self.tsn);
        let mut out = fixed.take().to_vec();
        if self.extensions.forward_tsn {
            write_parameter(&mut out, parameter::FORWARD_TSN_SUPPORTED, &[]);
        }
        let chunks =
            [(self.extensions.reset, chunk::RE_CONFIG), (self.extensions.forward_tsn, chunk::FORWARD_TSN)];
        let supported: Vec<u8> = chunks.iter().filter(|(has, _)| *has).map(|(_, kind)| *kind).collect();
        write_parameter(&mut out, parameter::SUPPORTED_EXTENSIONS, &supported);
        if let Some(cookie) = self.cookie {
            write_parameter(&mut out, parameter::STATE_COOKIE, cookie);
        }
        out.extend_from_slice(unknown);
        out
    }
}

/// True for address parameters, which have no meaning above DTLS (RFC 8261 §5): IPv4, IPv6, preservative, host name,
/// types.
const fn is_address(kind: u16) -> bool {
    matches!(kind, 5 | 6 | 9 | 11 | 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: Init<'static> = Init {
        tag: 7,
        window: 1 << 20,
        outgoing: 1024,
        incoming: 65_535,
        tsn: 0xffff_fff0,
        extensions: Extensions { forward_tsn: true, reset: true },
        cookie: Some(b"cookie"),
    };

    #[test]
    fn it_reads_as_it_was_written() {
        for (forward_tsn, reset) in [(true, true), (true, false), (false, true), (false, false)] {
            let init = Init { extensions: Extensions { forward_tsn, reset }, ..INIT };
            let mut unknown = Vec::new();
            assert_eq!(Init::read(&init.write(&[]), &mut unknown), Some(init));
            assert!(unknown.is_empty());
            for cookie in [None, Some(&b""[..])] {
                let init = Init { cookie, ..init };
                assert_eq!(Init::read(&init.write(&[]), &mut unknown), Some(init));
            }
        }
    }

    #[test]
    fn values_that_must_not_be_are_refused() {
        let mut unknown = Vec::new();
        for bad in [
            Init { tag: 0, ..INIT },
            Init { outgoing: 0, ..INIT },
            Init { incoming: 0, ..INIT },
            Init { window: 1499, ..INIT },
        ] {
            assert_eq!(Init::read(&bad.write(&[]), &mut unknown), None, "{bad:?}");
        }
        assert_eq!(Init::read(&INIT.write(&[])[..15], &mut unknown), None);
    }

    /// Checks the handling specified in RFC 9260 §3.2.1.
    #[test]
    fn an_unknown_parameter_is_passed_over_or_reported_as_its_upper_bits_say() {
        for (kind, goes_on, reported) in [
            (0x3001, false, false),
            (0x7001, false, true),
            (0xb001, true, false),
            (0xf001, true, true),
            (6, true, false),
        ] {
            let mut value = Init { cookie: None, ..INIT }.write(&[]);
            write_parameter(&mut value, kind, b"?");
            write_parameter(&mut value, parameter::STATE_COOKIE, b"behind");
            let mut unknown = Vec::new();
            let init = Init::read(&value, &mut unknown).unwrap();
            assert_eq!((init.cookie.is_some(), !unknown.is_empty()), (goes_on, reported), "{kind:#x}");
        }
        // The size of a report is limited.
        let mut value = INIT.write(&[]);
        (0..50).for_each(|_| write_parameter(&mut value, 0xf001, &[0; 100]));
        let mut unknown = Vec::new();
        Init::read(&value, &mut unknown).unwrap();
        assert!(unknown.len() <= 2 * REPORT_BYTES_MAX, "{}", unknown.len());
    }
}
