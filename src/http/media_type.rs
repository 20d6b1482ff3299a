//! Media types by file name extension (RFC 9110 §8.3). Those of streams come first.

/// Media types by extension, in lower case. Files with any other extension are sent as plain bytes. With `nosniff`,
/// a browser downloads such a file and does not execute it.
const TYPES: &[(&str, &str)] = &[
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("ts", "video/MP2T"),
    ("mpd", "application/dash+xml"),
    ("m4s", "video/iso.segment"),
    ("mp4", "video/mp4"),
    ("m4v", "video/mp4"),
    ("m4a", "audio/mp4"),
    ("fmp4", "video/mp4"),
    ("flv", "video/x-flv"),
    ("webm", "video/webm"),
    ("mkv", "video/x-matroska"),
    ("mp3", "audio/mpeg"),
    ("aac", "audio/aac"),
    ("ogg", "audio/ogg"),
    ("wav", "audio/wav"),
    ("vtt", "text/vtt;charset=utf-8"),
    ("html", "text/html;charset=utf-8"),
    ("htm", "text/html;charset=utf-8"),
    ("css", "text/css;charset=utf-8"),
    ("js", "text/javascript;charset=utf-8"),
    ("mjs", "text/javascript;charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("txt", "text/plain;charset=utf-8"),
    ("xml", "application/xml"),
    ("wasm", "application/wasm"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("ico", "image/x-icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
];

/// Returns the media type of a file by its extension.
#[must_use]
pub fn media_type(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
    let known = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(ending));
    known.map_or("application/octet-stream", |(_, media_type)| media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ending_decides() {
        assert_eq!(media_type("a.b/x.M3U8"), "application/vnd.apple.mpegurl");
        assert_eq!(media_type("x.html.bin"), "application/octet-stream");
        assert_eq!(media_type("html"), "application/octet-stream");
    }
}
