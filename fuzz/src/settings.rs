//! Targets for input from an operator or an API client: address rules, settings files, URLs.

use std::net::{IpAddr, Ipv4Addr};

use crate::auth::cidr::{parse, parse_address};
use crate::auth::{Url, redact};
use crate::live_url::LiveUrl;
use crate::properties_file;
use crate::rtmp_url::RtmpUrl;
use crate::srt_url::SrtUrl;

/// Reads a list of address rules. The first four bytes are the address to look up, the rest is the list.
pub fn cidr(data: &[u8]) {
    let Some((octets, text)) = data.split_first_chunk::<4>() else { return };
    let text = String::from_utf8_lossy(text);
    let v4 = Ipv4Addr::from(*octets);
    if let Some(address) = parse_address(&text) {
        assert_eq!(parse_address(&address.to_string()), Some(address), "own text does not read");
    }
    let Ok(list) = parse(&text) else { return };
    let mapped = IpAddr::V6(v4.to_ipv6_mapped());
    assert_eq!(list.contains(IpAddr::V4(v4)), list.contains(mapped), "two spellings, two answers");
    let spaced = format!(" {} ", text.replace(',', " , "));
    assert_eq!(parse(&spaced), Ok(list), "blanks changed the meaning");
}

/// Reads a settings file, changes a value in its text, and reads the text again: only that value must differ.
pub fn properties(data: &[u8]) {
    let Ok(found) = properties_file::parse(data) else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Skips inputs with backslashes, which may spell the same key differently, and inputs with a byte order mark. The
    // server's own files have neither.
    if text.contains('\\') || text.starts_with('\u{feff}') {
        return;
    }
    let Some(property) = found.first() else { return };
    let plain = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !plain(&property.key) {
        return;
    }
    let value = "a b\\c=d";
    let changed = properties_file::set_lines(text, &[(&property.key, value)]);
    let again = match properties_file::parse(changed.as_bytes()) {
        Ok(again) => again,
        Err((line, reason)) => panic!("line {line} of what was written: {reason}"),
    };
    assert_eq!(again.len(), found.len());
    for (before, after) in found.iter().zip(&again) {
        let want = if before.key == property.key { value } else { &before.value };
        assert_eq!((&after.key, after.value.as_str()), (&before.key, want));
    }
}

/// Reads the URL of an endpoint. An accepted URL can be written from its parts, and a redacted one never shows the
/// stream's name.
pub fn url_outbound(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let shown = redact(&text);
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    let Ok(url) = Url::parse(&text) else { return };
    let (host, port) = match url.scheme {
        "rtmp" | "rtmps" => {
            let Ok(read) = RtmpUrl::read(&url, 1935) else { return };
            let _ = read.stream_id().len();
            (read.host, read.port)
        }
        "srt" => {
            let Ok(read) = SrtUrl::read(&url, 4200) else { return };
            (read.host, read.port)
        }
        "http" | "https" => {
            let Ok(read) = LiveUrl::read(&url, 80) else { return };
            (read.host, read.port)
        }
        _ => return,
    };
    assert!(port > 0 && !host.is_empty());
    assert!(!host.contains(['/', '@', '?', '#', ' ']), "{host:?}");
    assert!(!shown.contains('?') && (!text.contains("//") || shown.contains("://")), "{shown:?}");
}
