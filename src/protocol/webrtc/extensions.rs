//! An extension of WHEP: the choice of the rendition, or of the spatial layer, that a player is sent. It is announced by
//! a `Link` of the answer whose relation is [`LAYER`]. GET lists the layers; POST chooses one, or none: then the path
//! decides again.

use serde_json::{Map, Value, json};

use super::layers::Forced;
use super::viewer::Viewer;
use crate::http::{BodyKind, Method, Methods};

/// Relation of the link (draft-murillo-whep, video layer selection).
pub(super) const LAYER: &str = "urn:ietf:params:whep:ext:core:layer";
/// Last part of the resource's path, below the session's URL.
pub(super) const LAYER_SEGMENT: &str = "layer";
/// Maximum size of a choice.
const CHOICE_BYTES_MAX: usize = 4096;

/// Bodies and methods of the resource.
pub(in crate::protocol) const CHOICES: BodyKind =
    BodyKind::Of { types: &["application/json"], bytes_max: CHOICE_BYTES_MAX };
pub(in crate::protocol) const RESOURCE: Methods =
    Methods::These(&[Method::Get, Method::Post, Method::Options]);

/// The choice of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LayerChoice {
    /// The media section, by its mid; `None` for the viewer's video.
    media: Option<String>,
    forced: Option<Forced>,
}

impl LayerChoice {
    /// Reads a choice. Members that are not known are ignored; `None` for members with other values than theirs, and
    /// for temporal layers, which only the path of a viewer decides.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let Value::Object(members) = serde_json::from_slice(body).ok()? else { return None };
        let media = text(&members, "mediaId")?;
        let number = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(value) => Some(Some(u32::try_from(value.as_u64()?).ok()?)),
        };
        let encoding = text(&members, "encodingId")?.map(|id| id.parse::<u8>().ok());
        let (spatial, most) = (number("spatialLayerId")?, number("maxSpatialLayerId")?);
        let (width, height) = (number("maxWidth")?, number("maxHeight")?);
        if ["temporalLayerId", "maxTemporalLayerId"].iter().any(|name| members.contains_key(*name)) {
            return None;
        }
        let forced = match encoding {
            Some(number) => Some(Forced::Track(number?)),
            None => spatial
                .or(most)
                .map(|layer| Forced::Layer(u8::try_from(layer).unwrap_or(u8::MAX)))
                .or_else(|| {
                    let is_limited = width.or(height).is_some();
                    let most = |limit: Option<u32>| limit.unwrap_or(u32::MAX);
                    is_limited.then(|| Forced::Size(most(width), most(height)))
                }),
        };
        Some(Self { media, forced })
    }

    /// Applies the choice to a viewer. Returns the status of the answer: 404 if the viewer has no such section or
    /// layer.
    pub(super) fn apply(&self, viewer: &mut Viewer, mid: Option<&str>) -> u16 {
        let is_other = |media: &String| mid != Some(media.as_str());
        if mid.is_none() || self.media.as_ref().is_some_and(is_other) {
            return 404;
        }
        if viewer.choose(self.forced) { 200 } else { 404 }
    }
}

/// Returns a member that is text, or a number as text. `None` if it is anything else.
fn text(members: &Map<String, Value>, name: &str) -> Option<Option<String>> {
    match members.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some(Some(text.clone())),
        Some(Value::Number(number)) => Some(Some(number.to_string())),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
    }
}

/// Returns the layers of a viewer's video, as the draft's event `layers` has them.
pub(super) fn describe(viewer: &Viewer, mid: Option<&str>) -> String {
    let mut all = Map::new();
    if let Some(mid) = mid {
        let layers = viewer.layers();
        let one = |(number, layer): (usize, &super::viewer::Layer)| {
            json!({
                "encodingId": layer.number.to_string(),
                "spatialLayerId": number,
                "width": layer.size.0,
                "height": layer.size.1,
                "bitrate": layer.bit_rate,
            })
        };
        let (active, list): (Vec<_>, Vec<_>) = (
            layers.iter().enumerate().filter(|(_, layer)| layer.is_sent).map(one).collect(),
            layers.iter().enumerate().map(one).collect(),
        );
        all.insert(mid.to_owned(), json!({ "active": active, "layers": list }));
    }
    Value::Object(all).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(body: &str) -> Option<(Option<String>, Option<Forced>)> {
        LayerChoice::read(body.as_bytes()).map(|choice| (choice.media, choice.forced))
    }

    #[test]
    fn a_choice_names_an_encoding_a_layer_or_a_size() {
        for (body, wanted) in [
            (r#"{"mediaId":"1","encodingId":"2"}"#, (Some("1"), Some(Forced::Track(2)))),
            (r#"{"mediaId":1,"encodingId":0}"#, (Some("1"), Some(Forced::Track(0)))),
            (r#"{"spatialLayerId":1,"other":[]}"#, (None, Some(Forced::Layer(1)))),
            (r#"{"maxSpatialLayerId":4000000000}"#, (None, Some(Forced::Layer(255)))),
            (r#"{"maxHeight":360}"#, (None, Some(Forced::Size(u32::MAX, 360)))),
            (r#"{"maxWidth":640,"maxHeight":null}"#, (None, Some(Forced::Size(640, u32::MAX)))),
            (r#"{"mediaId":"v","encodingId":null}"#, (Some("v"), None)),
            ("{}", (None, None)),
        ] {
            assert_eq!(choice(body), Some((wanted.0.map(str::to_owned), wanted.1)), "{body}");
        }
    }

    #[test]
    fn other_choices_are_refused() {
        for body in [
            "",
            "[]",
            "7",
            r#"{"mediaId":{}}"#,
            r#"{"encodingId":"hd"}"#,
            r#"{"encodingId":256}"#,
            r#"{"encodingId":-1}"#,
            r#"{"spatialLayerId":"1"}"#,
            r#"{"spatialLayerId":4294967296}"#,
            r#"{"maxHeight":1.5}"#,
            r#"{"temporalLayerId":0}"#,
        ] {
            assert_eq!(choice(body), None, "{body}");
        }
        let deep = format!(r#"{{"mediaId":{}1{}}}"#, "[".repeat(4000), "]".repeat(4000));
        assert_eq!(choice(&deep), None);
    }
}
