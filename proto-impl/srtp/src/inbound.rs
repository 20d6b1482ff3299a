//! Received packets, which are authenticated and then decrypted in place.
//!
//! A packet that fails authentication changes nothing but a counter: no rollover counter, no replay window, no
//! new source.

use rtp::{HEADER_BYTES, header_length};

use crate::SOURCES_MAX;
use crate::error::Error;
use crate::outbound::INDEX_END;
use crate::profile::{MasterKey, Profile};
use crate::replay::{Place, RTCP_WORDS, ReplayWindow, WORDS};
use crate::session::{Keys, Name, RTCP_ENCRYPTED, RTCP_HEAD_BYTES, rtcp_index_of};

/// Number of packets in one cycle of the sequence numbers.
const CYCLE: u64 = 1 << 16;
/// If a packet is ahead of the newest one by more than this, it may also belong to the next cycle, after a long outage,
/// so both indices are tried. For closer packets, only the nearest index is tried.
const DOUBT_AHEAD: u64 = 512;
/// If a packet is behind the newest one by more than this, it may also belong to the next cycle, after nearly a whole
/// cycle was lost, so both indices are tried.
const DOUBT_BEHIND: u64 = 128;

/// Counters of received packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InboundStats {
    /// RTP packets accepted.
    pub rtp: u64,
    /// RTCP packets accepted.
    pub rtcp: u64,
    /// Packets that failed authentication.
    pub not_authentic: u64,
    /// Packets that were received before, or are too old.
    pub replayed: u64,
    /// Packets dropped because the peer has too many sources.
    pub too_many_sources: u64,
    /// Unencrypted RTCP, and malformed packets.
    pub malformed: u64,
}

/// A source and its replay window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source<const N: usize> {
    ssrc: u32,
    window: ReplayWindow<N>,
}

/// SRTP context for received packets: the keys, and the state of each source of the peer.
#[derive(Debug)]
pub struct Inbound {
    keys: Keys,
    rtp: Vec<Source<WORDS>>,
    rtcp: Vec<Source<RTCP_WORDS>>,
    stats: InboundStats,
}

impl Inbound {
    /// Creates the context from the master key for the peer's direction. Never `None` for a valid
    /// [`MasterKey`].
    #[must_use]
    pub fn new(master: &MasterKey) -> Option<Self> {
        Some(Self {
            keys: Keys::new(master)?,
            rtp: Vec::new(),
            rtcp: Vec::new(),
            stats: InboundStats::default(),
        })
    }

    /// The profile.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        self.keys.profile()
    }

    /// Authenticates and decrypts an RTP packet in place. Returns the length of the decrypted packet. After an
    /// error, the bytes must not be used.
    pub fn unprotect(&mut self, packet: &mut [u8]) -> Result<usize, Error> {
        let result = self.open_rtp(packet);
        self.count(result, false)
    }

    /// Authenticates and decrypts an RTCP packet in place, like [`Inbound::unprotect`].
    pub fn unprotect_rtcp(&mut self, packet: &mut [u8]) -> Result<usize, Error> {
        let result = self.open_rtcp(packet);
        self.count(result, true)
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> InboundStats {
        self.stats
    }

    fn open_rtp(&mut self, packet: &mut [u8]) -> Result<usize, Error> {
        let head = header_length(packet).map_err(|_| Error::Malformed)?;
        let &[_, _, high, low, _, _, _, _, a, b, c, d] =
            packet.first_chunk::<HEADER_BYTES>().ok_or(Error::Malformed)?;
        if packet.len() < head.saturating_add(self.profile().rtp_overhead()) {
            return Err(Error::Malformed);
        }
        let (ssrc, number) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]));
        let at = self.rtp.iter().position(|source| source.ssrc == ssrc);
        let window = at.and_then(|at| self.rtp.get(at)).map(|source| &source.window);
        if window.is_none() && self.rtp.len() >= SOURCES_MAX {
            return Err(Error::TooManySources);
        }
        let guess = Guess::of(window, number)?;
        let session = &self.keys.rtp;
        let open = |index, packet: &mut [u8]| {
            // A larger index would change the bits of the SSRC, and give the packet the identity of another source's
            // packet.
            let name = (index < INDEX_END).then_some(Name { ssrc, index })?;
            session.open_rtp(name, head, packet).map(|length| (length, index))
        };
        let opened = match guess {
            Guess::One(index) => open(index, packet),
            // A failed attempt to decrypt destroys the body, so the second attempt needs a copy.
            Guess::Either(first, second) if session.opens_once() => {
                let kept = packet.to_vec();
                open(first, packet).or_else(|| {
                    packet.copy_from_slice(&kept);
                    open(second, packet)
                })
            }
            Guess::Either(first, second) => open(first, packet).or_else(|| open(second, packet)),
            Guess::NextRoundOnly(index) => Some(open(index, packet).ok_or(Error::Replayed)?),
        };
        let (length, index) = opened.ok_or(Error::NotAuthentic)?;
        note(&mut self.rtp, at, ssrc, index);
        Ok(length)
    }

    fn open_rtcp(&mut self, packet: &mut [u8]) -> Result<usize, Error> {
        let &[first, _, _, _, a, b, c, d] =
            packet.first_chunk::<RTCP_HEAD_BYTES>().ok_or(Error::Malformed)?;
        let least = RTCP_HEAD_BYTES.saturating_add(self.profile().rtcp_overhead());
        if first >> 6 != 2 || packet.len() < least {
            return Err(Error::Malformed);
        }
        let word = rtcp_index_of(self.profile(), packet).ok_or(Error::Malformed)?;
        // Unencrypted RTCP (E = 0) is refused: no peer is expected to send it.
        if word & RTCP_ENCRYPTED == 0 {
            return Err(Error::NotEncrypted);
        }
        let (ssrc, index) = (u32::from_be_bytes([a, b, c, d]), u64::from(word & !RTCP_ENCRYPTED));
        let at = self.rtcp.iter().position(|source| source.ssrc == ssrc);
        match at.and_then(|at| self.rtcp.get(at)) {
            Some(source) if source.window.place(index) != Place::Fresh => return Err(Error::Replayed),
            None if self.rtcp.len() >= SOURCES_MAX => return Err(Error::TooManySources),
            _ => {}
        }
        let opened = self.keys.rtcp().and_then(|keys| keys.open_rtcp(Name { ssrc, index }, packet));
        let length = opened.ok_or(Error::NotAuthentic)?;
        note(&mut self.rtcp, at, ssrc, index);
        Ok(length)
    }

    fn count(&mut self, result: Result<usize, Error>, rtcp: bool) -> Result<usize, Error> {
        let stats = &mut self.stats;
        let counter = match result {
            Ok(_) if rtcp => &mut stats.rtcp,
            Ok(_) => &mut stats.rtp,
            Err(Error::NotAuthentic) => &mut stats.not_authentic,
            Err(Error::Replayed) => &mut stats.replayed,
            Err(Error::TooManySources) => &mut stats.too_many_sources,
            Err(Error::Malformed | Error::NotEncrypted | Error::Reused | Error::KeyExhausted) => {
                &mut stats.malformed
            }
        };
        *counter = counter.saturating_add(1);
        result
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> String {
        format!("{:?} {:?}", self.rtp, self.rtcp)
    }
}

/// Marks the index of an authenticated packet, and adds its source if it is new.
fn note<const N: usize>(sources: &mut Vec<Source<N>>, at: Option<usize>, ssrc: u32, index: u64) {
    match at.and_then(|at| sources.get_mut(at)) {
        Some(source) => source.window.mark(index),
        None => sources.push(Source { ssrc, window: ReplayWindow::new(index) }),
    }
}

/// Indices to try for a packet (RFC 3711 §3.3.1). The RFC takes only the nearest index with the packet's
/// sequence number, which fails forever once half a cycle or more is lost, as in a long outage. Therefore the
/// index in the next cycle is tried, too, where it is likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guess {
    One(u64),
    Either(u64, u64),
    /// Only the index in the next cycle, since the nearest is older than the replay window.
    NextRoundOnly(u64),
}

impl Guess {
    fn of(window: Option<&ReplayWindow<WORDS>>, number: u16) -> Result<Self, Error> {
        let Some(window) = window else {
            let first = u64::from(number);
            // The first packets may have been lost, including the end of the first cycle. Then a low number
            // belongs to the second cycle.
            let early = number < 0x8000;
            return Ok(if early {
                Self::Either(first, first.saturating_add(CYCLE))
            } else {
                Self::One(first)
            });
        };
        let newest = window.newest();
        let ahead = u64::from(number).wrapping_sub(newest) % CYCLE;
        if ahead < CYCLE / 2 {
            let index = newest.saturating_add(ahead);
            return match window.place(index) {
                Place::Fresh if ahead > DOUBT_AHEAD => Ok(Self::Either(index, index.saturating_add(CYCLE))),
                Place::Fresh => Ok(Self::One(index)),
                Place::Seen | Place::Old => Err(Error::Replayed),
            };
        }
        let next_round = newest.saturating_add(ahead);
        match next_round.checked_sub(CYCLE).map(|index| (index, window.place(index))) {
            Some((index, Place::Fresh)) if newest.saturating_sub(index) > DOUBT_BEHIND => {
                Ok(Self::Either(index, next_round))
            }
            Some((index, Place::Fresh)) => Ok(Self::One(index)),
            Some((_, Place::Seen)) => Err(Error::Replayed),
            Some((_, Place::Old)) | None => Ok(Self::NextRoundOnly(next_round)),
        }
    }
}
