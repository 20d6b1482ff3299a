//! FLV files and the bodies of RTMP's messages.

use std::borrow::Cow;

use flv::amf0::Value;
use flv::file::TagKind;
use flv::tag::{AudioBody, AudioPacket, FrameType, VideoBody, VideoPacket};
use flv::{AudioTag, VideoTag};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::config::Config;
use crate::value::Payload;

crate::error!(millstream.flv, crate::Error);

/// Largest size that a tag can state.
const TAG_BYTES_MAX: u32 = 0xff_ffff;

/// Reads an FLV file or an HTTP-FLV body in pieces of any size: push bytes, then iterate over the tags that are
/// complete.
///
/// After an error, each further call raises it again. The reader holds the bytes that were pushed and not yet
/// returned.
#[pyclass(module = "millstream.flv")]
#[derive(Debug)]
pub(crate) struct Reader {
    reader: flv::file::Reader,
    failed: Option<flv::Error>,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (tag_bytes_max=TAG_BYTES_MAX))]
    fn new(tag_bytes_max: u32) -> Self {
        Self { reader: flv::file::Reader::new(tag_bytes_max), failed: None }
    }

    /// Adds bytes of the file.
    fn push(&mut self, data: Cow<'_, [u8]>) -> PyResult<()> {
        if let Some(failed) = &self.failed {
            return Err(error(failed));
        }
        self.reader.push(&data);
        Ok(())
    }

    /// Header of the file; `None` before it was read.
    #[getter]
    fn header(&self) -> Option<Header> {
        self.reader.header().map(Header::from)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> PyResult<Option<Tag>> {
        self.next().map_err(error)
    }
}

impl Reader {
    fn next(&mut self) -> Result<Option<Tag>, flv::Error> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let tag = self.reader.poll_tag().inspect_err(|failed| {
            // What is buffered cannot be read any more.
            (self.failed, self.reader) = (Some(*failed), flv::file::Reader::new(0));
        })?;
        Ok(tag.map(Tag::from))
    }
}

/// Reads all tags of a file, without the interpreter's lock. A tag that is cut off at the end is left out.
#[pyfunction]
#[pyo3(signature = (data, tag_bytes_max=TAG_BYTES_MAX))]
fn parse(py: Python<'_>, data: Cow<'_, [u8]>, tag_bytes_max: u32) -> PyResult<Vec<Tag>> {
    let tags = py.detach(|| {
        let mut reader = Reader::new(tag_bytes_max);
        reader.reader.push(&data);
        std::iter::from_fn(|| reader.next().transpose()).collect::<Result<Vec<_>, _>>()
    });
    tags.map_err(error)
}

value! {
    /// Header of a file.
    "millstream.flv" Header {
        /// True if audio tags are announced.
        audio: bool,
        /// True if video tags are announced.
        video: bool,
    }
}

impl From<flv::file::Header> for Header {
    fn from(header: flv::file::Header) -> Self {
        Self { audio: header.audio, video: header.video }
    }
}

value! {
    /// A tag of a file.
    "millstream.flv" Tag {
        /// `audio`, `video`, `data` or `other`.
        kind: &'static str,
        /// Number of the type.
        type_id: u8,
        /// Milliseconds; wraps after 49 days.
        timestamp: u32,
        /// Contents of the tag.
        body: Payload,
    }

    /// Reads the packets of an audio or video tag: one, or one for each track. Other tags, and commands to the
    /// player, have none.
    fn packets(&self) -> PyResult<Vec<Packet>> {
        match self.kind {
            "audio" => Packet::of_audio(AudioBody::read(&self.body.0).map_err(error)?),
            "video" => Packet::of_video(VideoBody::read(&self.body.0).map_err(error)?),
            _ => Ok(Vec::new()),
        }
    }

    /// Reads the name and the values of a data tag.
    fn data(&self, py: Python<'_>) -> PyResult<(String, Vec<Py<PyAny>>)> {
        let data = flv::data::Data::read(&self.body.0).map_err(error)?;
        let values = data.values.into_iter().map(|value| object(py, value));
        Ok((data.name, values.collect::<PyResult<_>>()?))
    }
}

impl From<flv::file::Tag> for Tag {
    fn from(tag: flv::file::Tag) -> Self {
        let (kind, type_id) = match tag.kind {
            TagKind::Audio => ("audio", 8),
            TagKind::Video => ("video", 9),
            TagKind::Data => ("data", 18),
            TagKind::Other(id) => ("other", id),
        };
        Self { kind, type_id, timestamp: tag.timestamp, body: Payload(tag.body) }
    }
}

value! {
    /// A packet of one track.
    "millstream.flv" Packet {
        /// Number of the track; 0 unless the tag has several.
        track: u8,
        /// Name of the codec.
        codec: String,
        /// `sequence_header`, `frame`, `end_of_sequence`, `metadata`, `mpeg2ts_sequence_start`, `multichannel_config`
        /// or `silence`.
        packet: &'static str,
        /// For video: `key`, `inter`, `disposable`, `generated_key`, `command` or `unstated`.
        frame_type: Option<&'static str>,
        /// Presentation time relative to the tag's timestamp, in milliseconds.
        composition_time_ms: i32,
        /// Nanoseconds to add to the timestamp.
        offset_nanos: u32,
        /// Media data, or the configuration record.
        payload: Payload,
        /// Configuration of the codec, in a sequence header of a codec that has one.
        config: Option<Config>,
    }
}

impl Packet {
    fn of_audio(body: AudioBody) -> PyResult<Vec<Self>> {
        match body {
            AudioBody::Tag(tag) => Ok(vec![Self::audio(0, tag)?]),
            AudioBody::Multitrack(tracks) => {
                tracks.into_iter().map(|one| Self::audio(one.id, one.tag.map_err(error)?)).collect()
            }
        }
    }

    fn of_video(body: VideoBody) -> PyResult<Vec<Self>> {
        match body {
            VideoBody::Tag(tag) => Ok(vec![Self::video(0, tag)?]),
            VideoBody::Multitrack(tracks) => {
                tracks.into_iter().map(|one| Self::video(one.id, one.tag.map_err(error)?)).collect()
            }
            VideoBody::Command(_) => Ok(Vec::new()),
        }
    }

    fn audio(track: u8, tag: AudioTag) -> PyResult<Self> {
        let (packet, is_header) = match tag.packet {
            AudioPacket::SequenceHeader => ("sequence_header", true),
            AudioPacket::Frame => ("frame", false),
            AudioPacket::EndOfSequence => ("end_of_sequence", false),
            AudioPacket::MultichannelConfig => ("multichannel_config", false),
            AudioPacket::Silence => ("silence", false),
        };
        let config = if is_header { Config::of_record(tag.codec, tag.payload.clone())? } else { None };
        Ok(Self {
            track,
            codec: tag.codec.to_string(),
            packet,
            frame_type: None,
            composition_time_ms: 0,
            offset_nanos: tag.offset_nanos,
            payload: Payload(tag.payload),
            config,
        })
    }

    fn video(track: u8, tag: VideoTag) -> PyResult<Self> {
        let (packet, is_header) = match tag.packet {
            VideoPacket::SequenceHeader => ("sequence_header", true),
            VideoPacket::Frame => ("frame", false),
            VideoPacket::EndOfSequence => ("end_of_sequence", false),
            VideoPacket::Metadata => ("metadata", false),
            VideoPacket::Mpeg2TsSequenceStart => ("mpeg2ts_sequence_start", false),
        };
        let config = if is_header { Config::of_record(tag.codec, tag.payload.clone())? } else { None };
        Ok(Self {
            track,
            codec: tag.codec.to_string(),
            packet,
            frame_type: Some(match tag.frame_type {
                FrameType::Unstated => "unstated",
                FrameType::Key => "key",
                FrameType::Inter => "inter",
                FrameType::Disposable => "disposable",
                FrameType::GeneratedKey => "generated_key",
                FrameType::Command => "command",
            }),
            composition_time_ms: tag.composition_time_ms,
            offset_nanos: tag.offset_nanos,
            payload: Payload(tag.payload),
            config,
        })
    }
}

value! {
    /// A date in AMF0.
    "millstream.flv" Date {
        /// Milliseconds since 1970.
        unix_ms: f64,
        /// Time zone, in minutes; encoders write 0.
        zone: i16,
    }
}

/// Makes an object of a value in AMF0. Nesting is bounded by the reader.
fn object(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    let dictionary = |pairs: Vec<(String, Value)>| {
        let dictionary = PyDict::new(py);
        for (name, value) in pairs {
            dictionary.set_item(name, object(py, value)?)?;
        }
        Ok(dictionary.into_any().unbind())
    };
    match value {
        Value::Number(number) => Ok(number.into_pyobject(py)?.into_any().unbind()),
        Value::Boolean(flag) => Ok(flag.into_pyobject(py)?.to_owned().into_any().unbind()),
        Value::String(text) | Value::XmlDocument(text) => Ok(text.into_pyobject(py)?.into_any().unbind()),
        Value::Object(pairs) | Value::EcmaArray(pairs) | Value::TypedObject { pairs, .. } => {
            dictionary(pairs)
        }
        Value::StrictArray(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(object(py, value)?)?;
            }
            Ok(list.into_any().unbind())
        }
        Value::Date { unix_ms, zone } => Ok(Date { unix_ms, zone }.into_pyobject(py)?.into_any().unbind()),
        Value::Null | Value::Undefined | Value::Unsupported => Ok(py.None()),
    }
}

/// Reads the AMF0 values of a command or a data message.
#[pyfunction]
fn amf0(py: Python<'_>, data: Cow<'_, [u8]>) -> PyResult<Vec<Py<PyAny>>> {
    let values = flv::amf0::read_all(&mut flv::Reader::new(&data)).map_err(error)?;
    values.into_iter().map(|value| object(py, value)).collect()
}

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Reader>()?;
    module.add_class::<Header>()?;
    module.add_class::<Tag>()?;
    module.add_class::<Packet>()?;
    module.add_class::<Date>()?;
    module.add_function(wrap_pyfunction!(parse, module)?)?;
    module.add_function(wrap_pyfunction!(amf0, module)?)
}
