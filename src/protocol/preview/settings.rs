//! Settings of an application: whether pictures of its streams are made, when, and in which form.

use std::time::Duration;

use picture::{Format, Shape};

use crate::config::group::TRANSCODING;
use crate::config::{AppSettings, Error, Extensions, Key, Section, Values, key};

const APP: &[Key] = &[
    key(
        TRANSCODING,
        "preview.onRequest",
        "true",
        "Previews on request",
        "Makes a picture of a live stream when previews/ID.png or previews/ID.jpg is requested",
    ),
    key(
        TRANSCODING,
        "generatePreview",
        "false",
        "Make preview pictures",
        "Makes a picture of each live stream once per period, even if nobody requests it",
    ),
    key(
        TRANSCODING,
        "createPreviewPeriod",
        "5000",
        "Time between previews",
        "Milliseconds for which a picture of a live stream is served before a new one is made, at least 1000",
    ),
    key(
        TRANSCODING,
        "previewHeight",
        "480",
        "Height of previews",
        "Maximum height of pictures in pixels, at most 1920; 0: no limit",
    ),
    key(
        TRANSCODING,
        "preview.width",
        "320",
        "Width of previews",
        "Maximum width of pictures in pixels; 0: follows from the height",
    ),
    key(
        TRANSCODING,
        "previewFormat",
        "png",
        "File format of previews",
        "Format of generatePreview: png or jpg; webp means jpg, any other value png; requests can have both",
    ),
    key(TRANSCODING, "previewQuality", "75", "Quality of previews", "Quality of JPEG, 1 to 100"),
];

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    app: APP,
    read_app: |values| Ok(Extensions::of(PreviewSettings::read(values)?)),
    ..Section::NONE
};

/// Maximum of `previewHeight` and `preview.width`.
const SIDE_MAX: u16 = 1920;
/// Minimum of `createPreviewPeriod`.
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// An application's settings of previews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreviewSettings {
    /// `preview.onRequest`.
    on_request: bool,
    /// `generatePreview` and `previewFormat`: the format that is made without a request.
    by_period: Option<Format>,
    /// `createPreviewPeriod`.
    pub(super) period: Duration,
    /// `preview.width` and `previewHeight`.
    size: (u16, u16),
    /// `previewQuality`.
    quality: u8,
}

static DEFAULTS: PreviewSettings = PreviewSettings {
    on_request: true,
    by_period: None,
    period: Duration::from_secs(5),
    size: (320, 480),
    quality: 75,
};

impl PreviewSettings {
    pub(super) fn of(app: &AppSettings) -> &Self {
        app.protocols.get().unwrap_or(&DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        // Ant Media Server server accepts any text and number here: unknown formats mean PNG, and large heights are
        // limited.
        let format = match values.text("previewFormat").trim().to_ascii_lowercase().as_str() {
            "jpg" | "jpeg" | "webp" => Format::Jpeg,
            _ => Format::Png,
        };
        Ok(Self {
            on_request: values.boolean("preview.onRequest")?,
            by_period: values.boolean("generatePreview")?.then_some(format),
            period: Duration::from_millis(values.number("createPreviewPeriod", 0_u64, 3_600_000)?)
                .max(PERIOD_MIN),
            size: (
                values.number("preview.width", 0_u16, SIDE_MAX)?,
                values.number("previewHeight", 0_u16, u16::MAX)?.min(SIDE_MAX),
            ),
            quality: values.number("previewQuality", 0_u8, 100)?.max(1),
        })
    }

    /// True if pictures of this format are made periodically, without a request.
    pub(super) fn makes_by_period(&self, format: Format) -> bool {
        self.by_period == Some(format)
    }

    /// True if pictures of this format are made at all.
    pub(super) fn makes(&self, format: Format) -> bool {
        self.on_request || self.makes_by_period(format)
    }

    /// Returns the form of pictures of this format.
    pub(super) const fn shape(&self, format: Format) -> Shape {
        Shape { format, width: self.size.0, height: self.size.1, quality: self.quality }
    }
}
