//! The description sent to a server in ANNOUNCE, and the setup of its tracks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::rtsp::{Channels, Client, ClientConfig, TrackSetup};
use crypto::Seed;
use media::{Track, TrackId};
use sdp::{Connection, Description, Host};

use super::package::channel_of;
use super::url::RtspUrl;
use crate::protocol::rtp_mapping::describe::section_of;

/// The tracks of a stream as sections of a description.
#[derive(Debug, Default)]
pub(super) struct Announcement {
    pub(super) description: Description,
    /// The tracks in the order of the sections.
    pub(super) tracks: Vec<TrackId>,
}

impl Announcement {
    /// Makes the announcement of the tracks that RTP can carry.
    pub(super) fn of<'a>(tracks: impl Iterator<Item = &'a Track>) -> Self {
        let mut new = Self::default();
        "millstream".clone_into(&mut new.description.name);
        new.description.connection = Some(Connection::new(Host::UNSPECIFIED));
        for track in tracks {
            if let Some(section) = section_of(track) {
                new.description.media.push(section);
                new.tracks.push(track.id);
            }
        }
        new
    }

    /// Returns the channels of a section, for which the packets of its track are made.
    pub(super) fn channels(&self, section: usize) -> Option<Channels> {
        Channels::from_rtp(channel_of(*self.tracks.get(section)?))
    }

    /// Returns the setup of each section: interleaved on the channels for which its packets are made.
    pub(super) fn interleaved(&self) -> Vec<TrackSetup> {
        (0..self.tracks.len())
            .filter_map(|section| Some(TrackSetup::on_channels(section, self.channels(section)?)))
            .collect()
    }

    /// Makes a client that publishes the announced stream. `via` lists the nodes and streams through which it was
    /// forwarded.
    pub(super) fn publish(
        &self,
        now: Instant,
        (url, timeout): (&RtspUrl, Duration),
        via: &[String],
        seed: Seed,
        setups: &[TrackSetup],
    ) -> Client {
        let config = ClientConfig {
            request_timeout: timeout,
            via: via.to_vec(),
            falls_back_to_tcp: false,
            ..ClientConfig::new(url.uri.clone())
        };
        Client::publish(now, Arc::new(config), self.description.clone(), setups, seed)
    }
}
