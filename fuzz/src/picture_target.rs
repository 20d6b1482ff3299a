//! Messages between a server and the process that makes its pictures.

use bytes::Bytes;
use picture::media::CodecConfig;
use picture::{
    ANSWER_BYTES_MAX, Answer, HEAD_BYTES, REQUEST_BYTES_MAX, Request, SIDE_MAX, length_of, look, make,
};

/// Maximum number of pixels of a key frame that is decoded. Larger ones take longer and reach no other code.
const PIXELS_MAX: u32 = 64 * 64;

/// Reads a stream of messages as the picture process and as the server do. A request that can be read reads the
/// same after it is written, and so does an answer. A small VP8 key frame is decoded; the decoder of H.264 is not
/// written in Rust, and has fuzzers of its own.
pub fn picture_message(data: &[u8]) {
    let mut rest = data;
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let Ok(length) = length_of(*head, REQUEST_BYTES_MAX) else { return };
        assert!(length <= REQUEST_BYTES_MAX && length_of(*head, ANSWER_BYTES_MAX).is_ok());
        let Some((message, next)) = behind.split_at_checked(length) else { return };
        rest = next;
        request(message);
        answer(message);
    }
}

fn request(message: &[u8]) {
    let Ok(request) = Request::read(message) else { return };
    let written = request.write().expect("a codec that was read has a decoder");
    assert_eq!(&written[HEAD_BYTES..], message, "a request has one spelling");
    assert_eq!(
        written.len() - HEAD_BYTES,
        length_of([written[0], written[1], written[2], written[3]], REQUEST_BYTES_MAX).unwrap()
    );
    let looked = look(&request.config, &request.payload);
    let CodecConfig::Vp8(_) = request.config else { return };
    let Some((width, height)) = picture::media::codec::vp8::picture_size(&request.payload) else {
        assert!(looked.is_err());
        return;
    };
    assert_eq!(looked.is_ok(), width <= SIDE_MAX && height <= SIDE_MAX);
    if width.saturating_mul(height) <= PIXELS_MAX
        && let Ok(made) = make(&request)
    {
        assert!(!made.is_empty());
    }
}

fn answer(message: &[u8]) {
    let Ok(answer) = Answer::read(Bytes::copy_from_slice(message)) else { return };
    let written = answer.write();
    assert_eq!(&written[HEAD_BYTES..], message, "an answer has one spelling");
}
