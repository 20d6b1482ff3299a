//! The tracks of a session, their URLs and transports.

use sdp::Description;

use crate::uri::{ends_with_control, resolve_control};
use crate::{Channels, Frame, Lower, Mode, Transport, limits};

/// A track: a section of the description.
#[derive(Debug)]
pub(crate) struct Track {
    /// Value of the `control` attribute. A track without the attribute has the URL of the presentation.
    control: Option<String>,
    pub(crate) transport: Option<Transport>,
}

/// The tracks of a session and their URLs.
pub(crate) struct Presentation {
    pub(crate) mode: Mode,
    /// URL to which `control` values are appended.
    base: String,
    /// URL of the whole presentation; `None` if it is the base.
    aggregate: Option<String>,
    pub(crate) tracks: Vec<Track>,
}

impl Presentation {
    /// Creates a presentation. `None` if the description has no section or too many.
    pub(crate) fn new(mode: Mode, base: &str, description: &Description) -> Option<Self> {
        let tracks: Vec<Track> = description
            .media
            .iter()
            .map(|media| Track { control: media.attributes.control().map(str::to_owned), transport: None })
            .collect();
        let aggregate = description.attributes.control().map(|control| resolve_control(base, Some(control)));
        let fits = !tracks.is_empty() && tracks.len() <= limits::TRACKS_MAX;
        fits.then(|| Self { mode, base: base.to_owned(), aggregate, tracks })
    }

    /// Returns the URL of the whole presentation.
    pub(crate) fn url(&self) -> &str {
        self.aggregate.as_deref().unwrap_or(&self.base)
    }

    /// Returns the URL of a track.
    pub(crate) fn url_of(&self, track: usize) -> Option<String> {
        self.tracks.get(track).map(|track| match track.control.as_deref() {
            None | Some("") => self.url().to_owned(),
            control @ Some(_) => resolve_control(&self.base, control),
        })
    }

    /// Returns the track that a URL names. Host and path of the URL are ignored: a proxy may have changed them, and the
    /// URL can only refer to the session of this connection.
    pub(crate) fn track_of(&self, url: &str) -> Option<usize> {
        self.tracks
            .iter()
            .position(|track| {
                track.control.as_deref().is_some_and(|control| {
                    // The host of an absolute control may differ from that of the request, so it is enough that
                    // its last component matches.
                    let last = control.rsplit('/').next().unwrap_or(control);
                    ends_with_control(url, control) || control.contains("://") && ends_with_control(url, last)
                })
            })
            .or_else(|| (self.tracks.len() == 1 && self.is_whole(url)).then_some(0))
    }

    /// True if a URL is that of the whole presentation.
    pub(crate) fn is_whole(&self, url: &str) -> bool {
        let plain = |url: &str| url.trim_end_matches('/').to_owned();
        plain(url) == plain(&self.base) || plain(url) == plain(self.url())
    }

    /// Returns the number of tracks that were set up.
    pub(crate) fn count(&self) -> usize {
        self.tracks.iter().filter(|track| track.transport.is_some()).count()
    }

    pub(crate) fn transport(&self, track: usize) -> Option<&Transport> {
        self.tracks.get(track)?.transport.as_ref()
    }

    /// Returns the interleaved channels of a track.
    pub(crate) fn channels(&self, track: usize) -> Option<Channels> {
        self.transport(track).filter(|transport| transport.lower == Lower::Tcp)?.channels
    }

    /// True if none of these channels is in use.
    pub(crate) fn are_free(&self, channels: Channels) -> bool {
        (0..self.tracks.len()).filter_map(|track| self.channels(track)).all(|used| !used.overlaps(channels))
    }

    /// Returns the lowest free pair of channels, even and odd.
    pub(crate) fn free_channels(&self) -> Option<Channels> {
        (0..=u8::MAX).step_by(2).filter_map(Channels::from_rtp).find(|channels| self.are_free(*channels))
    }

    /// Converts a frame received on a channel to one that names its track. `None` if the channel was not set up.
    pub(crate) fn frame(&self, channel: u8, payload: bytes::Bytes) -> Option<Frame> {
        (0..self.tracks.len())
            .filter_map(|track| Some((track, self.channels(track)?)))
            .find(|(_, channels)| channels.rtp == channel || channels.rtcp == channel)
            .map(|(track, channels)| Frame { track, is_rtcp: channels.rtcp == channel, channel, payload })
    }
}

/// Prints no URLs, since they may contain the key of a stream.
impl std::fmt::Debug for Presentation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Presentation")
            .field("mode", &self.mode)
            .field("tracks", &self.tracks.len())
            .finish_non_exhaustive()
    }
}
