//! The `Via` header field (RFC 2326 §12.43, RFC 2068 §14.44): the servers that a stream has passed, from the
//! first to the last.

use crate::limits::{HEADER_VALUE_BYTES_MAX, VIA_MAX};
use crate::message::Headers;

/// Name of the field.
pub(crate) const NAME: &str = "Via";
/// Protocol by which a server was reached, as in a status line.
const PROTOCOL: &str = "RTSP/1.0";

/// Returns the value of a field that lists these servers. Omits names with characters that are not allowed in
/// the field. `None` if no name remains, or if the value would be too long.
pub(crate) fn written(servers: &[String]) -> Option<String> {
    let is_name = |name: &&String| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && !b",()".contains(&byte))
    };
    let names = servers.iter().filter(is_name);
    let value = names.map(|name| format!("{PROTOCOL} {name}")).collect::<Vec<_>>().join(", ");
    (!value.is_empty() && value.len() <= HEADER_VALUE_BYTES_MAX).then_some(value)
}

/// Returns the servers listed by all `Via` fields of a message. Entries without a name are skipped.
pub(crate) fn read(headers: &Headers) -> Vec<String> {
    let entries = headers.all(NAME).flat_map(|value| value.split(','));
    let names = entries.filter_map(|entry| entry.split_ascii_whitespace().nth(1));
    names.take(VIA_MAX).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> Headers {
        let mut headers = Headers::default();
        values.iter().for_each(|value| headers.push(NAME, value));
        headers
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn servers_are_read_as_they_were_written() {
        let servers = names(&["node-a", "[2001:db8::1]:554"]);
        let value = written(&servers).unwrap();
        assert_eq!(value, "RTSP/1.0 node-a, RTSP/1.0 [2001:db8::1]:554");
        assert_eq!(read(&headers(&[&value])), servers);
        assert_eq!(written(&[]), None);
    }

    #[test]
    fn a_name_that_would_be_read_as_another_is_not_written() {
        for name in ["", "a b", "a,RTSP/1.0 b", "a\r\nSession: 1", "(a)", "\u{e9}"] {
            let written = written(&names(&[name, "node-a"]));
            assert_eq!(written.as_deref(), Some("RTSP/1.0 node-a"), "{name:?}");
        }
        assert_eq!(written(&names(&["n"; 300])), None, "longer than a field may be");
    }

    #[test]
    fn fields_of_proxies_are_read_up_to_a_limit() {
        let values = ["1.0 fred, 1.1 nowhere.com (Apache/1.1)", ",, RTSP/1.0 ,x", "RTSP/1.0 last"];
        assert_eq!(read(&headers(&values)), ["fred", "nowhere.com", "last"]);
        assert_eq!(read(&headers(&vec!["a b,a b,a b"; 40])).len(), VIA_MAX);
        assert_eq!(read(&Headers::default()), [""; 0]);
    }
}
