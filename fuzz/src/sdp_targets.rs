//! Targets for the session descriptions of WebRTC and RTSP peers.

use sdp::{Candidate, Description, Direction, Error, Format};

/// Reads the input as a description and as a fragment. After it is written and read again, it must be written the same.
/// A description must also be answerable.
pub fn sdp(data: &[u8]) {
    if let Ok(description) = Description::read(data) {
        has_one_text(&description.write(), |text| Description::read(text).map(|read| read.write()));
        is_answered(&description);
    }
    if let Ok(fragment) = Description::read_fragment(data) {
        has_one_text(&fragment.write_fragment(), |text| {
            Description::read_fragment(text).map(|read| read.write_fragment())
        });
    }
    if let Some(candidate) = Candidate::read(&String::from_utf8_lossy(data)) {
        assert_eq!(Candidate::read(&candidate.to_string()), Some(candidate));
    }
}

fn has_one_text(text: &str, again: impl Fn(&[u8]) -> Result<String, Error>) {
    match again(text.as_bytes()) {
        Ok(again) => assert_eq!(again, text),
        // The written text is longer: LF becomes CRLF, a byte that is not UTF-8 becomes three, and feedback for
        // all payload types becomes one line for each.
        Err(Error::TooLarge { .. } | Error::LineTooLong { .. } | Error::TooManyLines) => {}
        Err(Error::TooManyAttributes { .. }) => {}
        Err(error) => panic!("{error}: {text}"),
    }
}

fn is_answered(offer: &Description) {
    let mut answer = offer.start_answer();
    for media in &offer.media {
        let formats: Vec<Format> = media.rtp_formats().collect();
        for format in &formats {
            let _ = (format.parameters.h264_sets(), format.parameters.h265_sets());
            let _ = (format.parameters.mpeg4_config(), format.profile_level_id());
            assert!(format.is_repair() || format.matches(format));
        }
        let selected = media.select(&formats);
        let takes = !selected.is_empty() && !media.is_rejected();
        let wanted = offer.direction(media).answer(Direction::RecvOnly);
        answer.media.push(if takes {
            let mut section = media.accept(&selected, offer.direction(media), wanted);
            section.attributes.extend(media.answer_simulcast());
            section
        } else {
            media.reject()
        });
        let _ = (offer.transport(media), offer.trickles(media), offer.connection(media));
    }
    answer.mirror_bundle(offer);
    assert_eq!(offer.check_answer(&answer), Ok(()));
    has_one_text(&answer.write(), |text| Description::read(text).map(|read| read.write()));
}
