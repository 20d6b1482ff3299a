//! HLS pushed to another server by PUT and DELETE.

use std::io::Read;
use std::time::Duration;

use ureq::Agent;
use url::Url;

use super::posts;
use crate::jobs::RelayWork;

/// Timeout of a request. A segment that takes longer would be too late anyway.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes read of a response.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

pub(super) fn run(agent: &Agent, work: &RelayWork) -> Result<(), String> {
    let url = url_of(&work.url, &work.name);
    let sent = match &work.data {
        Some(data) => {
            let request = agent.put(url.as_str()).header("Content-Type", work.content_type);
            request.config().timeout_global(Some(TIMEOUT)).build().send(&data[..])
        }
        None => agent.delete(url.as_str()).config().timeout_global(Some(TIMEOUT)).build().call(),
    };
    let mut response = sent.map_err(|error| posts::reason(&error))?;
    let status = response.status();
    // The content of the response is not used. It is read so that the connection is not closed
    // while the server sends it.
    let body = response.body_mut().as_reader();
    let _ = std::io::copy(&mut body.take(ANSWER_BYTES_MAX), &mut std::io::sink());
    if status.is_success() { Ok(()) } else { Err(format!("the server answers {}", status.as_u16())) }
}

/// Returns the URL of the file `name` in the folder `base`, with the query of `base`.
fn url_of(base: &Url, name: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(name);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_below_the_path_and_before_the_query() {
        let of = |base: &str| url_of(&Url::parse(base).unwrap(), "cam.m3u8").to_string();
        assert_eq!(of("http://h/"), "http://h/cam.m3u8");
        assert_eq!(of("http://h"), "http://h/cam.m3u8");
        assert_eq!(of("https://h:8/a/b?key=1"), "https://h:8/a/b/cam.m3u8?key=1");
        assert_eq!(of("https://h:8/a/b/?key=1"), "https://h:8/a/b/cam.m3u8?key=1");
        assert_eq!(url_of(&Url::parse("http://h/a").unwrap(), "../x?y").as_str(), "http://h/a/..%2Fx%3Fy");
    }
}
