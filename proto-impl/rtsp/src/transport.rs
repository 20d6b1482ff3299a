//! The `Transport` field (RFC 2326 §12.39): a list of alternatives in a request, one of them in a response.

use std::fmt;

use crate::limits::TRANSPORTS_MAX;
use crate::message::number;

/// Error: the `Transport` field is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed Transport")]
pub struct BadTransport;

/// Transport below RTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lower {
    /// UDP datagrams between pairs of ports.
    Udp,
    /// Interleaved frames on the RTSP connection.
    Tcp,
}

/// Direction of media, as seen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// From the server to the client. This is the default if the field has no mode.
    Play,
    /// From the client to the server. ffmpeg writes `record`, rtspclientsink `RECORD`, some old clients `receive`.
    Record,
}

/// The ports of RTP and RTCP, both nonzero. If a field names only one port, RTCP uses the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    /// Port of RTP.
    pub rtp: u16,
    /// Port of RTCP, higher than that of RTP.
    pub rtcp: u16,
}

impl Ports {
    /// Returns an RTP port and the next one for RTCP. `None` if either is invalid.
    #[must_use]
    pub fn from_rtp(rtp: u16) -> Option<Self> {
        Some(Self { rtp, rtcp: rtp.checked_add(1)? }).filter(|_| rtp != 0)
    }

    fn read(value: &str) -> Option<Self> {
        let (rtp, rtcp) = pair::<u16>(value)?;
        let ports = match rtcp {
            Some(rtcp) => Self { rtp, rtcp },
            None => Self::from_rtp(rtp)?,
        };
        (rtp != 0 && rtp < ports.rtcp).then_some(ports)
    }
}

/// The interleaved channels of RTP and RTCP. If a field names only one channel, RTCP uses the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Channels {
    /// Channel of RTP.
    pub rtp: u8,
    /// Channel of RTCP, higher than that of RTP.
    pub rtcp: u8,
}

impl Channels {
    /// Returns the pair of an RTP channel and the next channel, for RTCP. `None` if there is no next channel.
    #[must_use]
    pub fn from_rtp(rtp: u8) -> Option<Self> {
        Some(Self { rtp, rtcp: rtp.checked_add(1)? })
    }

    /// True if both pairs have a channel in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.rtp == other.rtp || self.rtp == other.rtcp || self.rtcp == other.rtp || self.rtcp == other.rtcp
    }

    fn read(value: &str) -> Option<Self> {
        let (rtp, rtcp) = pair::<u8>(value)?;
        match rtcp {
            Some(rtcp) => Some(Self { rtp, rtcp }).filter(|_| rtp < rtcp),
            None => Self::from_rtp(rtp),
        }
    }
}

/// Parses `a-b` or `a`.
fn pair<T: std::str::FromStr>(value: &str) -> Option<(T, Option<T>)> {
    match value.split_once('-') {
        Some((first, second)) => Some((number(first)?, Some(number(second)?))),
        None => Some((number(value)?, None)),
    }
}

/// A transport alternative: RTP with profile AVP.
///
/// `source` and `destination` are claims of the peer and not verified. Media must only be sent to the address of the
/// peer's connection; otherwise the field could direct a server's traffic at any victim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transport {
    /// Transport below RTP: UDP or interleaved.
    pub lower: Lower,
    /// True if multicast is requested. No server of this crate grants it.
    pub multicast: bool,
    /// The client's ports; only for UDP.
    pub client_ports: Option<Ports>,
    /// The server's ports; only for UDP, and only in responses.
    pub server_ports: Option<Ports>,
    /// Channels; only if interleaved.
    pub channels: Option<Channels>,
    /// SSRC of the RTP packets, eight hexadecimal digits on the wire.
    pub ssrc: Option<u32>,
    /// Direction of media; `None` if not given.
    pub mode: Option<Mode>,
    /// Origin of the packets, as claimed by the peer.
    pub source: Option<String>,
    /// Destination of the packets, as claimed by the peer.
    pub destination: Option<String>,
}

impl Transport {
    /// Creates a unicast UDP transport with a client's ports.
    #[must_use]
    pub fn udp(client_ports: Ports) -> Self {
        Self { client_ports: Some(client_ports), ..Self::empty(Lower::Udp) }
    }

    /// Creates an interleaved transport on these channels.
    #[must_use]
    pub fn tcp(channels: Channels) -> Self {
        Self { channels: Some(channels), ..Self::empty(Lower::Tcp) }
    }

    const fn empty(lower: Lower) -> Self {
        Self {
            lower,
            multicast: false,
            client_ports: None,
            server_ports: None,
            channels: None,
            ssrc: None,
            mode: None,
            source: None,
            destination: None,
        }
    }

    /// Reads the supported alternatives in the peer's order of preference. Skips alternatives with another profile
    /// (SAVP, SAVPF, AVPF, RAW) or an unknown mode. A malformed alternative makes the whole field invalid.
    pub fn read_all(value: &str) -> Result<Vec<Self>, BadTransport> {
        let mut all = Vec::new();
        for (count, text) in split_unquoted(value, ',').enumerate() {
            if count >= TRANSPORTS_MAX {
                return Err(BadTransport);
            }
            all.extend(Self::read(text)?);
        }
        Ok(all)
    }

    /// Reads an alternative; `None` if it is not supported.
    fn read(text: &str) -> Result<Option<Self>, BadTransport> {
        let mut parts = split_unquoted(text, ';').map(str::trim_ascii);
        let profile = parts.next().unwrap_or_default();
        let is = |name: &str| profile.eq_ignore_ascii_case(name);
        let lower = if is("RTP/AVP") || is("RTP/AVP/UDP") {
            Lower::Udp
        } else if is("RTP/AVP/TCP") {
            Lower::Tcp
        } else {
            return if profile.is_empty() { Err(BadTransport) } else { Ok(None) };
        };
        let mut transport = Self::empty(lower);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = unquoted(value.trim_ascii());
            match name.trim_ascii().to_ascii_lowercase().as_str() {
                "unicast" => transport.multicast = false,
                "multicast" => transport.multicast = true,
                "client_port" => transport.client_ports = Some(Ports::read(value).ok_or(BadTransport)?),
                // Some cameras answer a request for interleaving with `server_port=0-0`, so an invalid value is no
                // error.
                "server_port" => transport.server_ports = Ports::read(value),
                "interleaved" => transport.channels = Some(Channels::read(value).ok_or(BadTransport)?),
                // Some servers write `ssrc` with spaces or more digits. An unreadable value is ignored, because no
                // decision depends on it.
                "ssrc" => transport.ssrc = u32::from_str_radix(value, 16).ok(),
                "mode" => match mode(value) {
                    Some(mode) => transport.mode = Some(mode),
                    None => return Ok(None),
                },
                "source" => transport.source = Some(value.to_owned()).filter(|value| !value.is_empty()),
                "destination" => {
                    transport.destination = Some(value.to_owned()).filter(|value| !value.is_empty());
                }
                _ => {}
            }
        }
        Ok(Some(transport))
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.lower {
            // "/UDP" is the default and is omitted, because some cameras do not understand it.
            Lower::Udp => "RTP/AVP",
            Lower::Tcp => "RTP/AVP/TCP",
        })?;
        f.write_str(if self.multicast { ";multicast" } else { ";unicast" })?;
        for (name, host) in [("destination", &self.destination), ("source", &self.source)] {
            if let Some(host) = host {
                let host: String = host.chars().filter(|c| !c.is_control() && !"\";,".contains(*c)).collect();
                write!(f, ";{name}={}", host.trim_ascii())?;
            }
        }
        for (name, ports) in [("client_port", self.client_ports), ("server_port", self.server_ports)] {
            if let Some(Ports { rtp, rtcp }) = ports {
                write!(f, ";{name}={rtp}-{rtcp}")?;
            }
        }
        if let Some(Channels { rtp, rtcp }) = self.channels {
            write!(f, ";interleaved={rtp}-{rtcp}")?;
        }
        if let Some(ssrc) = self.ssrc {
            write!(f, ";ssrc={ssrc:08X}")?;
        }
        match self.mode {
            Some(Mode::Play) => f.write_str(";mode=play"),
            // In lower case and without quotes, as ffmpeg sends it and as every recording server reads it.
            Some(Mode::Record) => f.write_str(";mode=record"),
            None => Ok(()),
        }
    }
}

/// Reads a mode. If the value is a quoted list, reads its first entry.
fn mode(value: &str) -> Option<Mode> {
    let first = value.split(',').next().unwrap_or_default();
    let first = first.trim_ascii().trim_matches(|c| c == '"' || c == '\'');
    let is = |name: &str| first.eq_ignore_ascii_case(name);
    if is("PLAY") { Some(Mode::Play) } else { (is("RECORD") || is("RECEIVE")).then_some(Mode::Record) }
}

/// Removes the quotes around a text, if any.
pub(crate) fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').map_or(text, |rest| rest.strip_suffix('"').unwrap_or(rest))
}

/// Splits a list at separators outside of quotes.
pub(crate) fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        let is_escaped = std::mem::take(&mut escaped);
        match c {
            '\\' if quoted => escaped = !is_escaped,
            '"' if !is_escaped => quoted = !quoted,
            _ => {}
        }
        !quoted && c == separator
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn only(text: &str) -> Transport {
        let mut all = Transport::read_all(text).unwrap();
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0)
    }

    #[test]
    fn what_clients_and_cameras_send() {
        let channels = Channels { rtp: 0, rtcp: 1 };
        let ffmpeg = only("RTP/AVP/TCP;unicast;interleaved=0-1;mode=record");
        assert_eq!(ffmpeg, Transport { mode: Some(Mode::Record), ..Transport::tcp(channels) });
        let gstreamer = only("RTP/AVP;unicast;client_port=50000-50001;mode=\"RECORD\"");
        let ports = Ports { rtp: 50000, rtcp: 50001 };
        assert_eq!(gstreamer, Transport { mode: Some(Mode::Record), ..Transport::udp(ports) });
        let ffplay = only("RTP/AVP/UDP;unicast;client_port=18888-18889");
        assert_eq!(ffplay, Transport::udp(Ports { rtp: 18888, rtcp: 18889 }));
        let live555 = only("RTP/AVP/TCP;unicast;interleaved=0-1");
        assert_eq!(live555, Transport::tcp(channels));
        let hikvision =
            only("RTP/AVP;unicast;client_port=1024-1025;server_port=8226-8227;ssrc=4c1d7d4f;mode=\"play\"");
        assert_eq!(hikvision.ssrc, Some(0x4c1d_7d4f));
        assert_eq!(hikvision.server_ports, Some(Ports { rtp: 8226, rtcp: 8227 }));
        assert_eq!(hikvision.mode, Some(Mode::Play));
        let axis = only("RTP/AVP/TCP;unicast;interleaved=0-1;ssrc=F3D2BD6E;mode=\"PLAY\"");
        assert_eq!((axis.mode, axis.ssrc), (Some(Mode::Play), Some(0xF3D2_BD6E)));
        let camera = only("RTP/AVP/TCP;unicast;destination=10.0.0.2;source=10.0.0.9;interleaved=2-3");
        assert_eq!(camera.source.as_deref(), Some("10.0.0.9"));
        assert_eq!(camera.channels, Some(Channels { rtp: 2, rtcp: 3 }));
        let zero = only("RTP/AVP/TCP;unicast;server_port=0-0;interleaved=0-1");
        assert_eq!(zero.server_ports, None);
    }

    #[test]
    fn the_order_of_alternatives_is_kept_and_foreign_ones_are_passed_over() {
        let all = Transport::read_all(
            "RTP/SAVP;unicast;client_port=1-2, RTP/AVP;multicast;mode=\"PLAY,RECORD\",\
             RTP/AVP/TCP;unicast;interleaved=4,x-pn-tng/tcp;mode=play,RTP/AVP;unicast;client_port=7;mode=fly",
        )
        .unwrap();
        assert_eq!(all.len(), 2);
        assert!(all[0].multicast && all[0].mode == Some(Mode::Play));
        assert_eq!(all[1].channels, Some(Channels { rtp: 4, rtcp: 5 }));
        assert_eq!(Transport::read_all("RTP/SAVPF/UDP;unicast"), Ok(vec![]));
    }

    #[test]
    fn p_08_ports_that_cannot_be_are_refused() {
        for ports in
            ["0", "0-1", "70000", "70000-70001", "5001-5000", "5000-5000", "65535", "-1", "1-", "a-b", ""]
        {
            let text = format!("RTP/AVP;unicast;client_port={ports}");
            assert_eq!(Transport::read_all(&text), Err(BadTransport), "{ports}");
        }
        let destination = only("RTP/AVP;unicast;client_port=5000;destination=192.0.2.7");
        assert_eq!(destination.client_ports, Some(Ports { rtp: 5000, rtcp: 5001 }));
        assert_eq!(destination.destination.as_deref(), Some("192.0.2.7"));
    }

    #[test]
    fn p_09_channels_that_cannot_be_are_refused() {
        for channels in ["255-256", "255", "1-0", "0-0", "256", "a", "0-1-2"] {
            let text = format!("RTP/AVP/TCP;unicast;interleaved={channels}");
            assert_eq!(Transport::read_all(&text), Err(BadTransport), "{channels}");
        }
        assert_eq!(Transport::read_all(""), Err(BadTransport));
        assert_eq!(Transport::read_all(&"RTP/AVP,".repeat(100)), Err(BadTransport));
    }

    prop_compose! {
        fn transports()(
            lower in prop_oneof![Just(Lower::Udp), Just(Lower::Tcp)],
            multicast: bool,
            client in prop::option::of((1u16..65000, 1u16..500)),
            server in prop::option::of((1u16..65000, 1u16..500)),
            channels in prop::option::of((0u8..250, 1u8..5)),
            ssrc: Option<u32>,
            mode in prop::option::of(prop_oneof![Just(Mode::Play), Just(Mode::Record)]),
            source in prop::option::of("[a-z0-9.:]{1,20}"),
            destination in prop::option::of("[a-z0-9.:]{1,20}"),
        ) -> Transport {
            let ports = |(rtp, more): (u16, u16)| Ports { rtp, rtcp: rtp + more };
            let channels = channels.map(|(rtp, more)| Channels { rtp, rtcp: rtp + more });
            let (client_ports, server_ports) = (client.map(ports), server.map(ports));
            Transport { lower, multicast, client_ports, server_ports, channels, ssrc, mode, source, destination }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_reads_the_same(list in prop::collection::vec(transports(), 1..5)) {
            let text = list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(Transport::read_all(&text), Ok(list));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[ -~]{0,80}") {
            if let Ok(all) = Transport::read_all(&text) {
                for one in all {
                    let again = Transport::read_all(&one.to_string()).unwrap();
                    prop_assert_eq!(&again[0].to_string(), &one.to_string());
                }
            }
        }
    }
}
