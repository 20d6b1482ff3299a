//! The pages that are built in. A file of the same name below `webapps` goes before them.

use bytes::Bytes;

use crate::http::{Request, Resource, Response, Selection};

/// The Content-Security-Policy of a built-in page. Players make their media from blobs.
const POLICY: &str = "default-src 'self'; media-src 'self' blob:; worker-src 'self' blob:; object-src 'none'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// `None`: in every application.
    app: Option<&'static str>,
    name: &'static str,
    content_type: &'static str,
    body: &'static str,
}

const PAGES: &[Page] = &[
    Page {
        app: Some("root"),
        name: "index.html",
        content_type: "text/html;charset=utf-8",
        body: include_str!("pages/status.html"),
    },
    Page {
        app: Some("root"),
        name: "reference.html",
        content_type: "text/html;charset=utf-8",
        body: include_str!("pages/reference.html"),
    },
    Page {
        app: Some("root"),
        name: "reference.js",
        content_type: "text/javascript;charset=utf-8",
        body: include_str!("pages/reference.js"),
    },
    Page {
        app: None,
        name: "index.html",
        content_type: "text/html;charset=utf-8",
        body: include_str!("pages/index.html"),
    },
    Page {
        app: None,
        name: "play.html",
        content_type: "text/html;charset=utf-8",
        body: include_str!("pages/play.html"),
    },
    Page {
        app: None,
        name: "play.js",
        content_type: "text/javascript;charset=utf-8",
        body: include_str!("pages/play.js"),
    },
    Page {
        app: None,
        name: "mpegts.js",
        content_type: "text/javascript;charset=utf-8",
        body: include_str!("pages/vendor/mpegts.js"),
    },
    Page {
        app: None,
        name: "page.css",
        content_type: "text/css;charset=utf-8",
        body: include_str!("pages/page.css"),
    },
];

/// The page of a path below `webapps`.
pub(super) fn find(segments: &[String]) -> Option<Page> {
    let [app, name] = segments else { return None };
    let is_here = |page: &&Page| match page.app {
        Some(only) => only == app,
        // The stylesheet is the status page's too.
        None => app != "root" || page.name == "page.css",
    };
    PAGES.iter().filter(is_here).find(|page| page.name == name).copied()
}

impl Page {
    /// Answers a request for it.
    pub(super) fn answer(self, request: &Request) -> Response {
        let resource = Resource {
            length: u64::try_from(self.body.len()).unwrap_or(0),
            etag: format!("\"{:08x}-{}\"", hash(self.body), self.body.len()),
            modified_ms: None,
            content_type: self.content_type,
        };
        let Selection { head, part } = resource.select(request);
        let mut answer = head
            .header("Cache-Control", "no-cache")
            .header("Content-Security-Policy", POLICY)
            .header("Referrer-Policy", "no-referrer");
        if let Some(part) = part {
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            let body = self.body.as_bytes().get(at(part.start)..at(part.end)).unwrap_or_default();
            answer.body = Bytes::from_static(body);
            answer.head_length = None;
        }
        answer
    }
}

/// FNV-1a: distinguishes versions of a page, nothing more.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str) -> Option<&'static str> {
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        find(&segments).map(|page| page.content_type)
    }

    #[test]
    fn pages_are_found_by_path() {
        assert_eq!(found("root/index.html"), Some("text/html;charset=utf-8"));
        assert_eq!(found("live/play.js"), Some("text/javascript;charset=utf-8"));
        assert_eq!(found("live/mpegts.js"), Some("text/javascript;charset=utf-8"));
        assert!(found("root/page.css").is_some());
        for path in ["root/play.html", "live/other.html", "live/streams/index.html", "live"] {
            assert_eq!(found(path), None, "{path}");
        }
    }

    #[test]
    fn pages_run_no_script_of_their_own_lines() {
        for page in PAGES.iter().filter(|page| page.name.ends_with(".html")) {
            assert!(!page.body.contains("<script>") && !page.body.contains("style="), "{}", page.name);
        }
    }
}
