//! Subtitles: WebVTT files, and cues as units.

use media::subtitles::{CUES_MAX, Cue, TEXT_BYTES_MAX, cue_text, escaped, read_webvtt, write_cue};

/// Reads the input as a WebVTT file, and as the payload of a cue. After it is written, it must read the same, whatever
/// text it contains.
pub fn webvtt(data: &[u8]) {
    if let Some(cue) = Cue::read(data) {
        assert_eq!(cue.write().as_deref(), Some(data));
    }
    let text = String::from_utf8_lossy(data);
    if let Some(text) = cue_text(&escaped(&text)) {
        assert_eq!(cue_text(&text).as_ref(), Some(&text));
        let mut file = String::from("WEBVTT\n\n");
        write_cue(&mut file, 0, 1000, &text);
        if let Ok(cues) = read_webvtt(file.as_bytes()) {
            assert_eq!(cues.iter().map(|cue| &cue.text).collect::<Vec<_>>(), [&text]);
        }
    }
    let Ok(cues) = read_webvtt(data) else { return };
    assert!(cues.len() <= CUES_MAX);
    let mut file = String::from("WEBVTT\n\n");
    for cue in &cues {
        assert!(cue.begin_ms < cue.end_ms && !cue.text.is_empty() && cue.text.len() <= TEXT_BYTES_MAX);
        write_cue(&mut file, cue.begin_ms, cue.end_ms, &cue.text);
    }
    // The written times may have more digits than those of the input, so the written file may exceed the limit.
    if file.len() <= media::subtitles::FILE_BYTES_MAX {
        assert_eq!(read_webvtt(file.as_bytes()), Ok(cues));
    }
}
