//! The renditions of a multivariant playlist.

use hls::playlist::{MultivariantPlaylist, Rendition, Resolution, Variant};
use hls::segmenter::Mp4Segmenter;
use media::{Track, TrackKind};

use crate::mail::Sound;
use crate::protocol::hls::sounds::{self, Choice, Group};
use crate::protocol::hls::{ENDING, declared_bits};

/// A rendition as a multivariant playlist describes it.
#[derive(Debug)]
pub(super) struct Member {
    /// Name of the rendition's playlist.
    uri: String,
    codecs: Vec<String>,
    resolution: Option<Resolution>,
    frame_rate_milli: Option<u64>,
    /// The description of its audio; `None` for video.
    sound: Option<Sound>,
    /// Peak and average bit rate, in bits per second.
    bits: (u64, u64),
    is_independent: bool,
}

impl Member {
    /// Describes a rendition that has segments.
    pub(super) fn of(rendition: &Mp4Segmenter) -> Self {
        let (described, track) = (rendition.newest(), rendition.tracks().first());
        let size = track.and_then(Track::picture_size);
        Self {
            uri: format!("{}{ENDING}", rendition.names().base),
            codecs: described.map(|one| one.codecs.clone()).unwrap_or_default(),
            resolution: size.map(|(width, height)| Resolution { width, height }),
            frame_rate_milli: described.and_then(|one| one.frame_rate_milli),
            sound: track.filter(|track| track.kind() == TrackKind::Audio).map(sounds::of),
            bits: (rendition.window().peak_bits(), rendition.window().average_bits()),
            is_independent: rendition.window().playlist().independent_segments,
        }
    }

    pub(super) const fn is_video(&self) -> bool {
        self.sound.is_none()
    }

    fn variant(&self, group: Option<&Group>) -> Variant {
        let beside = group.into_iter().flat_map(|group| &group.codecs);
        let codecs: Vec<&str> = self.codecs.iter().chain(beside).map(String::as_str).collect();
        let ((peak, average), (beside_peak, beside_average)) =
            (self.bits, group.map_or((0, 0), |group| group.bits));
        let (bandwidth, average) =
            declared_bits(peak.saturating_add(beside_peak), average.saturating_add(beside_average));
        Variant {
            uri: self.uri.clone(),
            bandwidth,
            average_bandwidth: Some(average),
            codecs: Some(codecs.join(",")),
            frame_rate_milli: self.frame_rate_milli,
            resolution: self.resolution,
            audio: group.map(|group| group.id.clone()),
            ..Variant::default()
        }
    }
}

/// All renditions that a stream has had, videos first.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<Member>);

impl Members {
    /// Notes the renditions that the stream has, and those whose tracks have left.
    pub(super) fn note<'r>(
        &mut self,
        present: impl Iterator<Item = &'r Mp4Segmenter>,
        absent: &'r [Mp4Segmenter],
    ) {
        let absent = absent.iter().filter(|one| one.window().is_enough());
        for (one, is_present) in present.map(|one| (one, true)).chain(absent.map(|one| (one, false))) {
            let new = Member::of(one);
            match self.0.iter_mut().find(|known| known.uri == new.uri) {
                Some(known) if is_present => {
                    // The segments with the highest rate may have left memory, and are still on the disk.
                    let peak = known.bits.0.max(new.bits.0);
                    *known = Member { bits: (peak, new.bits.1), ..new };
                }
                // The newest segments of a track that has left are gaps.
                Some(known) => known.is_independent = new.is_independent,
                None => self.0.push(new),
            }
        }
        self.0.sort_by_key(|one| !one.is_video());
    }

    pub(super) fn all(&self) -> &[Member] {
        &self.0
    }
}

/// Returns the variant with audio only; players begin with the default rendition of its group.
fn of_sounds(group: &Group, renditions: &[Rendition]) -> Variant {
    let first = renditions.iter().find(|one| one.group_id == group.id && one.default);
    let (bandwidth, average) = declared_bits(group.bits.0, group.bits.1);
    Variant {
        uri: first.and_then(|first| first.uri.clone()).unwrap_or_default(),
        bandwidth,
        average_bandwidth: Some(average),
        codecs: Some(group.codecs.join(",")),
        audio: Some(group.id.clone()),
        ..Variant::default()
    }
}

/// Returns the multivariant playlist of these renditions.
pub(super) fn master(members: &[Member]) -> MultivariantPlaylist {
    let choices: Vec<Choice<'_>> = members
        .iter()
        .filter_map(|one| {
            Some(Choice { uri: Some(one.uri.clone()), sound: one.sound.as_ref()?, bits: one.bits })
        })
        .collect();
    let videos: Vec<&Member> = members.iter().filter(|one| one.is_video()).collect();
    let (groups, renditions) = sounds::grouped(&choices);
    let (variants, renditions) = match (&*videos, &*choices) {
        ([], [_]) => (members.iter().map(|one| one.variant(None)).collect(), Vec::new()),
        ([], _) => (groups.iter().map(|group| of_sounds(group, &renditions)).collect(), renditions),
        (_, []) => (videos.iter().map(|one| one.variant(None)).collect(), Vec::new()),
        _ => {
            let with_each = videos.iter().flat_map(|one| groups.iter().map(|group| one.variant(Some(group))));
            (with_each.collect(), renditions)
        }
    };
    MultivariantPlaylist {
        version: 9,
        independent_segments: members.iter().all(|one| one.is_independent),
        variants,
        renditions,
    }
}
