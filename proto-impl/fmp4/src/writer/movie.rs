//! Writing `moov` (ISO/IEC 14496-12 §8.2), with or without sample tables.

use media::{Timescale, TrackKind};

use super::index::TrackIndex;
use super::out::Out;
use super::{Description, entry};
use crate::Error;

/// Timescale of the movie header. Its durations and the empty edits are written in this timescale.
const MOVIE_TIMESCALE: Timescale = Timescale::MILLISECONDS;
/// The unity matrix of headers, in 16.16 and 2.30.
const MATRIX: [u32; 9] = [0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000];
/// track_enabled, track_in_movie, track_in_preview (§8.3.2).
const TRACK_FLAGS: u32 = 7;
/// media_rate 1 in 16.16.
const RATE_ONE: u32 = 0x1_0000;
/// "und" in the fifteen bits of `mdhd`.
const UNDETERMINED: u16 = 0x55c4;

/// Writes the `moov` of an init segment.
pub(super) fn fragmented(out: &mut Out, tracks: &[&Description]) -> Result<(), Error> {
    let mut result = Ok(());
    out.boxed(b"moov", |out| {
        header(out, 0, tracks.iter().copied());
        for track in tracks {
            result = result.and_then(|()| trak(out, track, None));
        }
        out.boxed(b"mvex", |out| {
            for track in tracks {
                // §8.8.3: default sample entry 1. Each fragment states its other defaults itself.
                out.full(b"trex", 0, 0, |out| {
                    out.u32(track.id).u32(1).zeros(12);
                });
            }
        });
    });
    result
}

/// A track of WebVTT cues.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextTrack<'a> {
    pub(super) id: u32,
    /// Language, as a BCP 47 tag.
    pub(super) language: Option<&'a str>,
}

/// Writes the `moov` of an init segment for a track of cues (ISO/IEC 14496-30 §7.3).
pub(super) fn text(out: &mut Out, track: &TextTrack<'_>) {
    let packed = track.language.and_then(packed_language);
    out.boxed(b"moov", |out| {
        movie_header(out, 0, track.id);
        out.boxed(b"trak", |out| {
            let middle = |out: &mut Out| {
                out.u32(track.id).u32(0);
            };
            times(out, b"tkhd", TRACK_FLAGS, middle, 0, |out| {
                out.zeros(16);
                MATRIX.iter().for_each(|value| {
                    out.u32(*value);
                });
                out.zeros(8);
            });
            out.boxed(b"mdia", |out| {
                let middle = |out: &mut Out| {
                    out.u32(MOVIE_TIMESCALE.ticks());
                };
                times(out, b"mdhd", 0, middle, 0, |out| {
                    out.u16(packed.unwrap_or(UNDETERMINED)).u16(0);
                });
                out.full(b"hdlr", 0, 0, |out| {
                    out.u32(0).bytes(b"text").zeros(12).bytes(b"TextHandler\0");
                });
                extended_language(out, track.language.filter(|_| packed.is_none()));
                out.boxed(b"minf", |out| {
                    out.full(b"nmhd", 0, 0, |_| {});
                    data_information(out);
                    out.boxed(b"stbl", |out| {
                        out.full(b"stsd", 0, 0, |out| {
                            out.u32(1).boxed(b"wvtt", |out| {
                                // data_reference_index is 1 (§8.5.2.2): the media is in this file.
                                out.zeros(6).u16(1).boxed(b"vttC", |out| {
                                    out.bytes(b"WEBVTT");
                                });
                            });
                        });
                        empty_tables(out);
                    });
                });
            });
        });
        out.boxed(b"mvex", |out| {
            out.full(b"trex", 0, 0, |out| {
                out.u32(track.id).u32(1).zeros(12);
            });
        });
    });
}

/// Sample tables of a track, and the offset at which the media begins in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) index: &'a TrackIndex,
    pub(super) media_offset: u64,
    /// True if chunk offsets need 64 bits.
    pub(super) is_wide: bool,
}

/// Writes the `moov` of a plain file.
pub(super) fn plain(
    out: &mut Out,
    tracks: &[TrackIndex],
    media_offset: u64,
    is_wide: bool,
) -> Result<(), Error> {
    let mut result = Ok(());
    let duration = tracks.iter().map(|track| Edits::of_index(track).total()).max().unwrap_or(0);
    out.boxed(b"moov", |out| {
        header(out, duration, tracks.iter().map(|track| &track.description));
        for index in tracks {
            let tables = Tables { index, media_offset, is_wide };
            result = result.and_then(|()| trak(out, &index.description, Some(tables)));
        }
    });
    result
}

/// An edit list (§8.6.6): an optional delay, then the media from `media_time` on.
#[derive(Debug, Clone, Copy)]
struct Edits {
    /// Delay before the media, in ticks of the movie; 0 for none.
    delay: u64,
    /// Presented duration of the media, in ticks of the movie; 0 in a fragmented file, because its end is unknown.
    duration: u64,
    /// Media time at which the presentation starts, in ticks of the track.
    media_time: i64,
}

impl Edits {
    fn of_fragments(track: &Description) -> Self {
        let delay = movie_ticks(track, track.media_start.saturating_neg());
        let media_time = if track.media_start > 0 { track.media_start } else { 0 };
        Self { delay, duration: 0, media_time }
    }

    /// Creates the edit list of a plain file. After a delay, `media_time` must be the first presentation time: with an
    /// earlier `media_time`, players would still present the first sample directly after the delay, which is too early.
    fn of_index(index: &TrackIndex) -> Self {
        let track = &index.description;
        let (first, end) = index.presented();
        let media_time = if track.media_start < 0 { first.max(0) } else { track.media_start };
        let delay = media_time.saturating_sub(track.media_start);
        let duration = movie_ticks(track, end.saturating_sub(media_time));
        Self { delay: movie_ticks(track, delay), duration, media_time }
    }

    const fn total(&self) -> u64 {
        self.delay.saturating_add(self.duration)
    }

    const fn is_needed(&self) -> bool {
        self.delay > 0 || self.media_time > 0
    }

    fn write(self, out: &mut Out) {
        let is_wide =
            u32::try_from(self.delay.max(self.duration)).is_err() || i32::try_from(self.media_time).is_err();
        let edits = (self.delay > 0).then_some((self.delay, -1)).into_iter();
        let edits = edits.chain([(self.duration, self.media_time)]);
        out.full(b"elst", u8::from(is_wide), 0, |out| {
            out.u32(if self.delay > 0 { 2 } else { 1 });
            for (duration, media_time) in edits {
                if is_wide {
                    out.u64(duration).i64(media_time);
                } else {
                    out.u32(u32::try_from(duration).unwrap_or(u32::MAX));
                    out.i32(i32::try_from(media_time).unwrap_or(i32::MAX));
                }
                out.u32(RATE_ONE);
            }
        });
    }
}

/// Converts ticks of a track to those of the movie; negative values become 0.
fn movie_ticks(track: &Description, ticks: i64) -> u64 {
    u64::try_from(track.timescale.convert(ticks, MOVIE_TIMESCALE)).unwrap_or(0)
}

/// Writes `mvhd` (§8.2.2).
fn header<'a>(out: &mut Out, duration: u64, tracks: impl Iterator<Item = &'a Description>) {
    movie_header(out, duration, tracks.map(|track| track.id).max().unwrap_or(0));
}

/// Writes `mvhd`, given the largest id of a track.
fn movie_header(out: &mut Out, duration: u64, last: u32) {
    times(
        out,
        b"mvhd",
        0,
        |out| {
            out.u32(MOVIE_TIMESCALE.ticks());
        },
        duration,
        |out| {
            // Normal rate and full volume.
            out.u32(RATE_ONE).u16(0x100).zeros(10);
            MATRIX.iter().for_each(|value| {
                out.u32(*value);
            });
            out.zeros(24).u32(last.saturating_add(1));
        },
    );
}

/// Writes a header box: two unused times, the fields written by `middle`, and a duration. Uses version 1 of the
/// box if the duration needs 64 bits.
fn times(
    out: &mut Out,
    kind: &[u8; 4],
    flags: u32,
    middle: impl FnOnce(&mut Out),
    duration: u64,
    rest: impl FnOnce(&mut Out),
) {
    let short = u32::try_from(duration);
    out.full(kind, u8::from(short.is_err()), flags, |out| {
        out.zeros(if short.is_ok() { 8 } else { 16 });
        middle(out);
        match short {
            Ok(short) => out.u32(short),
            Err(_) => out.u64(duration),
        };
        rest(out);
    });
}

/// Writes `trak` (§8.3.1).
fn trak(out: &mut Out, track: &Description, tables: Option<Tables<'_>>) -> Result<(), Error> {
    let media_duration = tables.map_or(0, |tables| tables.index.duration());
    let edits = tables.map_or_else(|| Edits::of_fragments(track), |tables| Edits::of_index(tables.index));
    let language = track.language.as_deref();
    let packed = language.and_then(packed_language);
    let mut result = Ok(());
    out.boxed(b"trak", |out| {
        track_header(out, track, if tables.is_some() { edits.total() } else { 0 });
        if edits.is_needed() {
            out.boxed(b"edts", |out| edits.write(out));
        }
        out.boxed(b"mdia", |out| {
            let middle = |out: &mut Out| {
                out.u32(track.timescale.ticks());
            };
            times(out, b"mdhd", 0, middle, media_duration, |out| {
                out.u16(packed.unwrap_or(UNDETERMINED)).u16(0);
            });
            let (handler, name) = match track.config.codec().kind() {
                TrackKind::Video => (b"vide", &b"VideoHandler\0"[..]),
                TrackKind::Audio | TrackKind::Data => (b"soun", &b"SoundHandler\0"[..]),
            };
            out.full(b"hdlr", 0, 0, |out| {
                out.u32(0).bytes(handler).zeros(12).bytes(name);
            });
            extended_language(out, language.filter(|_| packed.is_none()));
            out.boxed(b"minf", |out| result = media_information(out, track, tables));
        });
    });
    result
}

/// Writes `elng` (§8.4.6) for a tag that does not fit the three letters of `mdhd`.
fn extended_language(out: &mut Out, tag: Option<&str>) {
    if let Some(tag) = tag {
        out.full(b"elng", 0, 0, |out| {
            out.bytes(tag.as_bytes()).u8(0);
        });
    }
}

/// Writes `tkhd` (§8.3.2).
fn track_header(out: &mut Out, track: &Description, duration: u64) {
    let middle = |out: &mut Out| {
        out.u32(track.id).u32(0);
    };
    times(out, b"tkhd", TRACK_FLAGS, middle, duration, |out| {
        let is_audio = track.config.codec().kind() == TrackKind::Audio;
        out.zeros(12).u16(if is_audio { 0x100 } else { 0 }).u16(0);
        MATRIX.iter().for_each(|value| {
            out.u32(*value);
        });
        let (width, height) = track.picture_size().filter(|_| !is_audio).unwrap_or((0, 0));
        // The width in `tkhd` is the display width, scaled by the pixel aspect ratio.
        let (across, down) = track.pixel_aspect.filter(|(_, down)| *down > 0).unwrap_or((1, 1));
        let shown = u64::from(width).saturating_mul(across.into()) / u64::from(down);
        out.u16(u16::try_from(shown).unwrap_or(u16::MAX)).u16(0);
        out.u16(u16::try_from(height).unwrap_or(u16::MAX)).u16(0);
    });
}

/// Returns a three-letter ISO 639-2 code in packed form, each letter less 0x60 (§8.4.2.3); `None` for other tags.
fn packed_language(tag: &str) -> Option<u16> {
    let letters: [u8; 3] = tag.as_bytes().try_into().ok()?;
    let is_code = letters.iter().all(u8::is_ascii_lowercase);
    is_code.then(|| letters.into_iter().fold(0, |packed, letter| packed << 5 | u16::from(letter & 0x1f)))
}

/// Writes `minf` (§8.4.4).
fn media_information(out: &mut Out, track: &Description, tables: Option<Tables<'_>>) -> Result<(), Error> {
    match track.config.codec().kind() {
        TrackKind::Video => out.full(b"vmhd", 0, 1, |out| {
            out.zeros(8);
        }),
        TrackKind::Audio | TrackKind::Data => out.full(b"smhd", 0, 0, |out| {
            out.zeros(4);
        }),
    };
    data_information(out);
    let mut result = Ok(());
    out.boxed(b"stbl", |out| {
        out.full(b"stsd", 0, 0, |out| {
            out.u32(1);
            result = entry::write(out, track);
        });
        match tables {
            Some(tables) => tables.index.write(out, tables.media_offset, tables.is_wide),
            None => empty_tables(out),
        }
    });
    result
}

/// Writes `dinf` (§8.7.2): the media is in this file.
fn data_information(out: &mut Out) {
    out.boxed(b"dinf", |out| {
        out.full(b"dref", 0, 0, |out| {
            out.u32(1).full(b"url ", 0, 1, |_| {});
        });
    });
}

/// Writes the sample tables of a fragmented track, which are empty.
fn empty_tables(out: &mut Out) {
    for kind in [b"stts", b"stsc", b"stco"] {
        out.full(kind, 0, 0, |out| {
            out.u32(0);
        });
    }
    out.full(b"stsz", 0, 0, |out| {
        out.zeros(8);
    });
}
