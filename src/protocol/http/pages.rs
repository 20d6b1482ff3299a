//! The built-in pages. A file of the same name below `webapps` overrides them.

use bytes::Bytes;

use crate::http::{Request, Resource, Response, Selection, coding};

/// The pages in gzip, made by the build script. Each row has the length and the hash of a page, and
/// its compressed content.
const PACKED: &[(usize, u32, &[u8])] = include!(concat!(env!("OUT_DIR"), "/packed_pages.rs"));

/// The Content-Security-Policy of a built-in page. Players make their media from blobs.
macro_rules! policy {
    ($more:literal, $ancestors:literal) => {
        concat!(
            "default-src 'self'; media-src 'self' blob:; worker-src 'self' blob:; object-src 'none'; ",
            "base-uri 'none'; form-action 'self'; ",
            $more,
            "frame-ancestors ",
            $ancestors
        )
    };
}
const POLICY: &str = policy!("", "'none'");
/// Policy of a page that any other page may frame: a player has nothing that would be worth a
/// clickjacking attack.
const FRAMED_POLICY: &str = policy!("", "*");
/// Policy of the API viewer, whose library needs inline styles and icons, but no inline scripts.
const VIEWER_POLICY: &str = policy!("style-src 'self' 'unsafe-inline'; img-src 'self' data:; ", "'none'");

const HTML: &str = "text/html;charset=utf-8";
const SCRIPT: &str = "text/javascript;charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const STYLE: &str = "text/css;charset=utf-8";

/// A built-in page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// The application that has the page; `None` for every application.
    app: Option<&'static str>,
    name: &'static str,
    content_type: &'static str,
    policy: &'static str,
    body: &'static str,
}

impl Page {
    /// Makes a page of the server itself.
    const fn of_root(name: &'static str, content_type: &'static str, body: &'static str) -> Self {
        Self { app: Some("root"), name, content_type, policy: POLICY, body }
    }

    /// Makes a page of every application.
    const fn of_apps(name: &'static str, content_type: &'static str, body: &'static str) -> Self {
        Self { app: None, name, content_type, policy: POLICY, body }
    }

    const fn with_policy(self, policy: &'static str) -> Self {
        Self { policy, ..self }
    }
}

const PAGES: &[Page] = &[
    // Browsers request this name from every site, and use the media type of the answer.
    Page::of_root("favicon.ico", IMAGE, include_str!("pages/favicon.svg")),
    Page::of_root("index.html", HTML, include_str!("../../../panel/index.html")),
    Page::of_root("panel.css", STYLE, include_str!("../../../panel/panel.css")),
    Page::of_root("panel.js", SCRIPT, include_str!("../../../panel/panel.js")),
    Page::of_root("panel-api.js", SCRIPT, include_str!("../../../panel/panel-api.js")),
    Page::of_root("panel-app.js", SCRIPT, include_str!("../../../panel/panel-app.js")),
    Page::of_root("panel-broadcast.js", SCRIPT, include_str!("../../../panel/panel-broadcast.js")),
    Page::of_root("panel-files.js", SCRIPT, include_str!("../../../panel/panel-files.js")),
    Page::of_root("panel-icons.js", SCRIPT, include_str!("../../../panel/panel-icons.js")),
    Page::of_root("panel-kit.js", SCRIPT, include_str!("../../../panel/panel-kit.js")),
    Page::of_root("panel-log.js", SCRIPT, include_str!("../../../panel/panel-log.js")),
    Page::of_root("panel-login.js", SCRIPT, include_str!("../../../panel/panel-login.js")),
    Page::of_root("panel-md5.js", SCRIPT, include_str!("../../../panel/panel-md5.js")),
    Page::of_root("panel-overview.js", SCRIPT, include_str!("../../../panel/panel-overview.js")),
    Page::of_root("panel-qr.js", SCRIPT, include_str!("../../../panel/panel-qr.js")),
    Page::of_root("panel-recordings.js", SCRIPT, include_str!("../../../panel/panel-recordings.js")),
    Page::of_root("panel-settings.js", SCRIPT, include_str!("../../../panel/panel-settings.js")),
    Page::of_root("panel-strings.js", SCRIPT, include_str!("../../../panel/panel-strings.js")),
    Page::of_root("panel-test.js", SCRIPT, include_str!("../../../panel/panel-test.js")),
    Page::of_root("panel-users.js", SCRIPT, include_str!("../../../panel/panel-users.js")),
    Page::of_root("panel-viewers.js", SCRIPT, include_str!("../../../panel/panel-viewers.js")),
    Page::of_root("preact.js", SCRIPT, include_str!("../../../panel/vendor/preact.js")),
    Page::of_root("qrcode.js", SCRIPT, include_str!("../../../panel/vendor/qrcode.js")),
    Page::of_root("rapidoc.js", SCRIPT, include_str!("../../../panel/vendor/rapidoc.js")),
    Page::of_root("reference.html", HTML, include_str!("../../../panel/reference.html"))
        .with_policy(VIEWER_POLICY),
    Page::of_root("reference.js", SCRIPT, include_str!("../../../panel/reference.js")),
    Page::of_apps("page.css", STYLE, include_str!("pages/page.css")),
    Page::of_apps("index.html", HTML, include_str!("pages/index.html")),
    Page::of_apps("conference.html", HTML, include_str!("pages/conference.html")),
    Page::of_apps("conference.css", STYLE, include_str!("pages/conference.css")),
    Page::of_apps("conference.js", SCRIPT, include_str!("pages/conference.js")),
    Page::of_apps("conference_room.js", SCRIPT, include_str!("pages/conference_room.js")),
    Page::of_apps("publish.js", SCRIPT, include_str!("pages/publish.js")),
    Page::of_apps("publisher.js", SCRIPT, include_str!("pages/publisher.js")),
    Page::of_apps("sources.js", SCRIPT, include_str!("pages/sources.js")),
    Page::of_apps("test_pattern.js", SCRIPT, include_str!("pages/test_pattern.js")),
    Page::of_apps("play.html", HTML, include_str!("pages/play.html")).with_policy(FRAMED_POLICY),
    Page::of_apps("play.js", SCRIPT, include_str!("pages/play.js")),
    Page::of_apps("play_webrtc.js", SCRIPT, include_str!("pages/play_webrtc.js")),
    Page::of_apps("play_flv.js", SCRIPT, include_str!("pages/play_flv.js")),
    Page::of_apps("play_hls.js", SCRIPT, include_str!("pages/play_hls.js")),
    Page::of_apps("millstream-player.js", SCRIPT, include_str!("pages/millstream-player.js")),
    Page::of_apps("play_rounds.js", SCRIPT, include_str!("pages/play_rounds.js")),
    Page::of_apps("play_events.js", SCRIPT, include_str!("pages/play_events.js")),
    Page::of_apps("play_media.js", SCRIPT, include_str!("pages/play_media.js")),
    Page::of_apps("play_dash.js", SCRIPT, include_str!("pages/play_dash.js")),
    Page::of_apps("play_vod.js", SCRIPT, include_str!("pages/play_vod.js")),
    Page::of_apps("hls.js", SCRIPT, include_str!("pages/vendor/hls.js")),
    Page::of_apps("dash.js", SCRIPT, include_str!("pages/vendor/dash.js")),
    Page::of_apps("mpegts.js", SCRIPT, include_str!("pages/vendor/mpegts.js")),
    Page::of_apps("whip.js", SCRIPT, include_str!("pages/whip.js")),
    Page::of_apps("figures.js", SCRIPT, include_str!("pages/figures.js")),
];

/// True if an application has a built-in page of this name. A file of that name would hide the page.
#[must_use]
pub fn has_page(app: &str, name: &str) -> bool {
    find(&[app.to_owned(), name.to_owned()]).is_some()
}

/// Returns the page with this path below `webapps`.
pub(super) fn find(segments: &[String]) -> Option<Page> {
    let [app, name] = segments else { return None };
    let is_here = |page: &&Page| match page.app {
        Some(only) => only == app,
        None => app != "root",
    };
    PAGES.iter().filter(is_here).find(|page| page.name == name).copied()
}

impl Page {
    /// Answers a request for the page.
    pub(super) fn answer(self, request: &Request) -> Response {
        let hash = hash(self.body);
        let is_whole = request.header("range").is_none();
        let packed = self.packed(hash).filter(|_| is_whole && coding::accepts_gzip(&request.headers));
        let body = packed.unwrap_or(self.body.as_bytes());
        let etag = format!("\"{hash:08x}-{}\"", self.body.len());
        let resource = Resource {
            length: u64::try_from(body.len()).unwrap_or(0),
            etag: if packed.is_some() { coding::tag_in_gzip(&etag) } else { etag },
            modified_ms: None,
            content_type: self.content_type,
        };
        let Selection { mut head, part } = resource.select(request);
        coding::vary(&mut head.headers);
        if packed.is_some() && part.is_some() {
            coding::mark(&mut head.headers);
        }
        let mut answer = head
            .header("Cache-Control", "no-cache")
            .header("Content-Security-Policy", self.policy)
            .header("Referrer-Policy", "no-referrer");
        if let Some(part) = part {
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            answer.body = Bytes::from_static(body.get(at(part.start)..at(part.end)).unwrap_or_default());
            answer.head_length = None;
        }
        answer
    }

    /// Returns the page in gzip; `None` if it is too short to be compressed.
    fn packed(self, hash: u32) -> Option<&'static [u8]> {
        let is_it = |(length, known, _): &&(usize, u32, &[u8])| *length == self.body.len() && *known == hash;
        PACKED.iter().find(is_it).map(|(.., packed)| *packed)
    }
}

/// Computes FNV-1a, which is only used to distinguish versions of a page. The build script uses the
/// same function.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

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
        for path in ["root/play.html", "root/page.css", "live/other.html", "live/streams/index.html", "live"]
        {
            assert_eq!(found(path), None, "{path}");
        }
    }

    #[test]
    fn the_build_has_compressed_every_page_that_is_worth_it() {
        for page in PAGES.iter().filter(|page| page.body.len() >= coding::CODED_BYTES_MIN) {
            let packed = page.packed(hash(page.body)).unwrap_or_else(|| panic!("{}: build.rs", page.name));
            let mut body = String::new();
            flate2::read::GzDecoder::new(packed).read_to_string(&mut body).unwrap();
            assert!(packed.len() < body.len() && body == page.body, "{}", page.name);
        }
    }

    /// Returns the values of an attribute, or other texts between `opening` and the next quotation
    /// mark.
    fn quoted<'a>(body: &'a str, opening: &'a str) -> impl Iterator<Item = &'a str> {
        body.split(opening).skip(1).filter_map(|rest| rest.split('"').next())
    }

    const LIBRARIES: [&str; 6] = ["dash.js", "hls.js", "mpegts.js", "preact.js", "qrcode.js", "rapidoc.js"];

    /// Returns the pages of this server, except those of libraries.
    fn pages_of(extension: &str) -> impl Iterator<Item = &'static Page> {
        let is_ours = |page: &&Page| !LIBRARIES.contains(&page.name);
        PAGES.iter().filter(is_ours).filter(move |page| page.name.ends_with(extension))
    }

    #[test]
    fn pages_run_no_script_of_their_own_lines() {
        assert!(pages_of(".html").count() >= 4);
        for page in pages_of(".html") {
            let lines = page.body.to_ascii_lowercase();
            for script in lines.split("<script").skip(1) {
                let (tag, rest) = script.split_once('>').unwrap();
                assert!(tag.contains("src=") && rest.starts_with("</script>"), "{}: {tag}", page.name);
            }
            // HTML allows spaces and quotation marks before `=`; our pages have none there.
            for inline in ["style=", "<style", "javascript:", " on"] {
                let is_handler = |rest: &str| rest.bytes().take_while(u8::is_ascii_alphabetic).count() > 0;
                let found = lines.split(inline).skip(1).any(|rest| {
                    inline != " on"
                        || is_handler(rest) && rest.trim_start_matches(char::is_alphabetic).starts_with('=')
                });
                assert!(!found, "{}: {inline}", page.name);
            }
        }
    }

    #[test]
    fn pages_and_modules_name_files_that_are_built_in() {
        for page in pages_of(".html") {
            let app = page.app.unwrap_or("live");
            let names = [r#"src=""#, r#"href=""#, r#"action=""#].map(|opening| quoted(page.body, opening));
            for name in names.into_iter().flatten() {
                // A page lies in the folder of its application.
                let path = name
                    .strip_prefix('/')
                    .or_else(|| name.strip_prefix("../"))
                    .map_or_else(|| format!("{app}/{name}"), |name| format!("root/{name}"));
                assert!(found(&path).is_some() || path == "root/openapi.json", "{}: {name}", page.name);
            }
        }
        // The namespace of an SVG image looks like an address, so images are excluded.
        for page in pages_of("").filter(|page| page.content_type != IMAGE) {
            // Addresses that are only shown, and examples of addresses, load nothing.
            let names = page.body.match_indices("://").map(|(at, _)| &page.body[at.saturating_sub(5)..at]);
            let mut loaded = names.filter(|scheme| scheme.ends_with("http") || scheme.ends_with("ws"));
            assert_eq!(loaded.next(), None, "{} names another origin", page.name);
            let example = "https://files.example";
            assert_eq!(page.body.matches("https://").count(), page.body.matches(example).count());
        }
        let mut imports = 0;
        for page in pages_of(".js") {
            let app = page.app.unwrap_or("live");
            for opening in [" from \"./", " from \"/", "import(\"/", "import \"./"] {
                for name in quoted(page.body, opening) {
                    imports += 1;
                    assert_eq!(found(&format!("{app}/{name}")), Some(SCRIPT), "{}: {name}", page.name);
                }
            }
        }
        assert!(imports >= 40, "{imports}");
    }

    #[test]
    fn libraries_of_players_are_what_their_list_says() {
        let list = include_str!("../../../src/protocol/http/pages/vendor/README.md");
        let mut rows = 0;
        for line in list.lines().filter(|line| line.starts_with("| `")) {
            rows += 1;
            let names: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
            let (name, hash) = (names[0], *names.last().unwrap());
            let page = PAGES.iter().find(|page| page.name == name).unwrap();
            let digest = crypto::sha256(&[page.body.as_bytes()]);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, hash, "{name}");
        }
        assert_eq!(rows, 3);
    }

    #[test]
    fn what_modules_show_is_text() {
        for page in pages_of(".js") {
            for markup in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "InnerHTML",
                "document.write",
                "eval(",
                "new Function",
            ] {
                assert!(!page.body.contains(markup), "{}: {markup}", page.name);
            }
        }
    }

    #[test]
    fn the_play_link_has_nothing_of_the_publisher() {
        let publish = PAGES.iter().find(|page| page.name == "publish.js").unwrap();
        let link = publish
            .body
            .split("function showLink()")
            .nth(1)
            .and_then(|rest| rest.split("\n}").next())
            .unwrap();
        assert_eq!(link.matches("searchParams.set(\"id\", idField.value)").count(), 1, "{link}");
        assert!(!link.contains("query") && !link.contains("token"), "{link}");
    }
}
