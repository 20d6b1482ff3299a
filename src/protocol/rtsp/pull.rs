//! A pull: the stream of a camera, a recorder or another server.
//!
//! Packets arrive interleaved, or as datagrams at sockets that are opened before the server learns of them. Anybody
//! can send to these sockets, so datagrams from other addresses or ports than the server's are dropped (RFC 7826
//! §21.2.3). At first this side sends a datagram to each of the server's ports, so that NATs on the way let the
//! server's datagrams in.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::rtsp::{ClientConfig, ClientEvent as Told, CloseReason, Lower, Ports, Status, TrackSetup, Transport};
use bytes::Bytes;
use crypto::Seed;
use rtp::Ssrc;
use rtp::rtcp::Compound;
use sdp::Description;
use wire::{Datagrams, SendQueue};

mod waiting;

use waiting::{Arrived, Waiting};

use super::pairs::{Opened, Pairs, path_of, track_of};
use super::settings::{Carriage, RtspAppSettings};
use super::url::RtspUrl;
use super::viewer::after;
use crate::auth::redact;
use crate::mail::Grant;
use crate::protocol::pull::{
    Client, ClientDatagrams, ClientEvent, ClientStream, Patience, Start, UnitClient,
};
use crate::protocol::rtp_mapping::{Depackager, Source};
use crate::protocol::usable::Supply;
use crate::protocol::{PathId, Remote, To};

/// Interval of receiver reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of units that wait for a consumer that reads at playback speed. While so many wait, arriving
/// datagrams are lost.
const UNITS_MAX: usize = 2048;
/// Maximum size of a report in bytes.
const REPORT_BYTES_MAX: usize = 256;

/// The stage of receiving packets.
#[derive(Debug)]
enum Intake {
    /// The stream is not described yet.
    None,
    /// The stream is described; its packets wait for the grant.
    Described { sources: Vec<Option<Source>>, waiting: Waiting },
    /// Packets become units.
    Granted(Box<Depackager>),
}

/// The transport of a track's packets.
#[derive(Debug)]
struct Way {
    section: usize,
    /// Local ports, if there are sockets.
    ports: Option<Ports>,
    /// Ports of the server, if it has announced them.
    server: Option<Ports>,
    lower: Lower,
}

/// A datagram to send.
#[derive(Debug)]
struct Outgoing {
    path: PathId,
    to: SocketAddr,
    payload: Bytes,
}

/// A pull's client.
#[derive(Debug)]
pub(super) struct RtspPull {
    config: ClientConfig,
    seed: Seed,
    /// The transport that the URL asks for, if any.
    asked: Option<Carriage>,
    carriage: Carriage,
    /// The RTSP client, made when the connection is open.
    machine: Option<Box<::rtsp::Client>>,
    /// The server's address, if known.
    server: Option<IpAddr>,
    pairs: Pairs,
    ways: Vec<Way>,
    intake: Intake,
    begun: bool,
    /// A grant that arrived before the description.
    grant: Option<Grant>,
    report_at: Option<Instant>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<ClientEvent>,
}

impl RtspPull {
    pub(super) fn new(url: &RtspUrl, patience: Patience, seed: Seed) -> Self {
        let config = ClientConfig {
            request_timeout: patience.handshake,
            stall_timeout: Some(patience.stall),
            ..ClientConfig::new(url.uri.clone())
        };
        Self {
            config,
            seed,
            asked: url.carriage,
            carriage: Carriage::Either,
            machine: None,
            server: None,
            pairs: Pairs::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            ways: Vec::new(),
            intake: Intake::None,
            begun: false,
            grant: None,
            report_at: None,
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Handles the events of the RTSP client.
    fn drain_machine(&mut self, now: Instant) {
        while let Some(told) = self.machine.as_mut().and_then(|machine| machine.poll_event()) {
            match told {
                Told::Described(description) => self.described(now, &description),
                Told::NotInterleaved => self.open_next(now),
                Told::SetUp { track, transport } => self.set_up(track, &transport),
                Told::Ready { .. } => {
                    self.report_at = Some(after(now, REPORT_INTERVAL));
                    self.events.push_back(ClientEvent::Accepted);
                }
                Told::Interleaved(frame) => self.packet(now, frame.track, frame.is_rtcp, &frame.payload),
                Told::Announced(_) => self.end("the server describes the stream anew"),
                Told::Redirect { location } => {
                    self.end(&format!("moved to {} (redirects are not followed)", redact(&location)));
                }
                Told::Rejected { status, reason } => self.end(&refusal(status, &reason)),
                Told::Closed(CloseReason::PeerClosed) => self.end("the server ended the stream"),
                Told::Closed(reason) => self.end(&reason.to_string()),
            }
        }
    }

    fn end(&mut self, reason: &str) {
        self.events.push_back(ClientEvent::Ended(reason.to_owned()));
    }

    /// Selects the sections that are supported.
    fn described(&mut self, now: Instant, description: &Description) {
        let sources: Vec<_> =
            description.media.iter().map(|media| Source::of(&media.rtp_formats().next()?)).collect();
        let carried = sources.iter().enumerate().filter(|(_, source)| source.is_some());
        self.ways = carried
            .take(media::TRACKS_MAX)
            .map(|(section, _)| Way { section, ports: None, server: None, lower: Lower::Tcp })
            .collect();
        if self.ways.is_empty() {
            return self.end("nothing of the stream can be carried");
        }
        self.intake = match self.grant.take() {
            Some(grant) => Intake::Granted(Box::new(Depackager::new(now, &grant, sources))),
            None => Intake::Described { sources, waiting: Waiting::default() },
        };
        match self.carriage {
            Carriage::Interleaved | Carriage::Either => self.choose(now),
            Carriage::Datagrams => self.open_next(now),
        }
    }

    /// Opens the next pair of sockets; when all are open, sets up the tracks.
    fn open_next(&mut self, now: Instant) {
        match self.ways.iter().find(|way| way.ports.is_none()).map(|way| way.section) {
            Some(section) if self.pairs.open(section, None) => self.events.extend(self.pairs.take_asks()),
            Some(_) => self.end("there are no ports for its datagrams"),
            None => self.choose(now),
        }
    }

    fn choose(&mut self, now: Instant) {
        let setup = |way: &Way| match way.ports {
            Some(ports) => TrackSetup::udp(way.section, ports),
            None => TrackSetup::interleaved(way.section),
        };
        let tracks: Vec<TrackSetup> = self.ways.iter().map(setup).collect();
        if let Some(machine) = &mut self.machine {
            machine.setup(now, &tracks);
        }
    }

    /// Handles a completed SETUP of a track, and sends first datagrams to the server's ports.
    fn set_up(&mut self, section: usize, transport: &Transport) {
        let Some(way) = self.ways.iter_mut().find(|way| way.section == section) else { return };
        (way.lower, way.server) = (transport.lower, transport.server_ports);
        let (Some(server), Some(ports), Lower::Udp) = (self.server, way.server, way.lower) else { return };
        let mut report = Compound::new(REPORT_BYTES_MAX);
        report.receiver_reports(Ssrc(0), &[]);
        let rtcp = Bytes::from(report.into_bytes());
        // An RTP header with version 2 and nothing else, so that it belongs to no source.
        let mut rtp = [0; rtp::HEADER_BYTES];
        rtp[0] = 0x80;
        let rtp = Bytes::copy_from_slice(&rtp);
        let of = |is_rtcp, port, payload| Outgoing {
            path: path_of(section, is_rtcp),
            to: SocketAddr::new(server, port),
            payload,
        };
        self.outgoing.extend([of(false, ports.rtp, rtp), of(true, ports.rtcp, rtcp)]);
    }

    /// True if a datagram on a track's path is from the server.
    fn is_servers(&self, section: usize, is_rtcp: bool, from: SocketAddr) -> bool {
        let Some(way) = self.ways.iter().find(|way| way.section == section) else { return false };
        let port = way.server.map(|ports| if is_rtcp { ports.rtcp } else { ports.rtp });
        way.lower == Lower::Udp
            && self.server.is_none_or(|server| server == from.ip())
            && port.is_none_or(|port| port == from.port())
    }

    fn packet(&mut self, now: Instant, section: usize, is_rtcp: bool, packet: &[u8]) {
        match &mut self.intake {
            Intake::None => {}
            Intake::Described { sources, waiting } => {
                if !is_rtcp
                    && sources.get(section).is_some_and(Option::is_some)
                    && let Some(machine) = &mut self.machine
                {
                    machine.media_progress(now);
                }
                waiting.push(section, is_rtcp, packet);
                if !is_rtcp && !std::mem::replace(&mut self.begun, true) {
                    self.events.push_back(ClientEvent::Begun);
                }
            }
            Intake::Granted(depackager) => {
                if is_rtcp {
                    depackager.handle_rtcp(now, section, packet);
                } else if depackager.handle_rtp(now, section, packet)
                    && let Some(machine) = &mut self.machine
                {
                    machine.media_progress(now);
                }
                self.take_units();
            }
        }
    }

    fn take_units(&mut self) {
        let Intake::Granted(depackager) = &mut self.intake else { return };
        while let Some((unit, tracks)) = depackager.poll_unit() {
            self.events.push_back(ClientEvent::Unit { unit, tracks });
        }
        while let Some(news) = depackager.take_clock_news() {
            self.events.push_back(ClientEvent::ClockNews(news));
        }
        let dropped = depackager.take_dropped();
        if dropped > 0 {
            self.events.push_back(ClientEvent::Dropped(dropped));
        }
    }

    /// Sends receiver reports to the server when due.
    fn report(&mut self, now: Instant) {
        if self.report_at.is_none_or(|at| at > now) {
            return;
        }
        self.report_at = Some(after(now, REPORT_INTERVAL));
        let Intake::Granted(depackager) = &mut self.intake else { return };
        for way in &self.ways {
            let Some(report) = depackager.report(now, way.section).map(Bytes::from) else { continue };
            match (way.lower, self.server.zip(way.server)) {
                (Lower::Tcp, _) => {
                    if let Some(machine) = &mut self.machine {
                        machine.send_frame(way.section, true, report);
                    }
                }
                (Lower::Udp, Some((server, ports))) => self.outgoing.push_back(Outgoing {
                    path: path_of(way.section, true),
                    to: SocketAddr::new(server, ports.rtcp),
                    payload: report,
                }),
                (Lower::Udp, None) => {}
            }
        }
    }
}

/// Describes a server's refusal.
fn refusal(status: Status, reason: &str) -> String {
    format!("RTSP {} {reason}", status.code())
}

impl ClientStream for RtspPull {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Some(machine) = &mut self.machine
            && let Err(error) = machine.handle_bytes(now, bytes)
        {
            tracing::debug!(%error, "server of a pull broke the protocol");
        }
        self.drain_machine(now);
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(machine) = &mut self.machine {
            machine.poll_transmit(out);
        }
    }
}

impl ClientDatagrams for RtspPull {
    fn handle_local(&mut self, now: Instant, path: PathId, local: Option<SocketAddr>) {
        let opened = self.pairs.opened(path, local.map(|local| local.port()));
        self.events.extend(self.pairs.take_asks::<ClientEvent>());
        match opened {
            Opened::NotYet => {}
            Opened::Pair(section, ports) => {
                if let Some(way) = self.ways.iter_mut().find(|way| way.section == section) {
                    way.ports = Some(ports);
                }
                self.open_next(now);
            }
            Opened::Failed => self.end("there are no ports for its datagrams"),
        }
    }

    fn handle_datagram(&mut self, now: Instant, path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        let Some((section, is_rtcp)) = track_of(path) else { return };
        if self.is_servers(section, is_rtcp, from) && self.events.len() < UNITS_MAX {
            self.packet(now, section, is_rtcp, datagram);
        }
    }

    fn poll_datagrams(&mut self, _now: Instant, out: &mut Datagrams) -> To {
        // Each packet has its own path, so they are sent separately.
        let Some(Outgoing { path, to, payload }) = self.outgoing.pop_front() else { return To::PEER };
        out.push(&payload, &[]);
        To { path, remote: Some(Remote::of(to)), last: self.outgoing.is_empty() }
    }
}

impl UnitClient for RtspPull {
    fn handle_grant(&mut self, now: Instant, grant: &Grant) {
        let Intake::Described { sources, waiting } = std::mem::replace(&mut self.intake, Intake::None) else {
            self.grant = Some(grant.clone());
            return;
        };
        self.intake = Intake::Granted(Box::new(Depackager::new(now, grant, sources)));
        for Arrived { section, is_rtcp, packet } in waiting.take() {
            self.packet(now, section, is_rtcp, &packet);
        }
    }

    fn supply(&self) -> Supply {
        match &self.intake {
            Intake::Granted(depackager) => depackager.supply(),
            Intake::None | Intake::Described { .. } => Supply::Nothing,
        }
    }
}

impl Client for RtspPull {
    fn begin(&mut self, start: &Start<'_>) {
        if let Some(settings) = start.app.and_then(RtspAppSettings::of) {
            self.config.request_timeout = settings.timeout;
            self.carriage = settings.carriage;
        }
        self.carriage = self.asked.unwrap_or(self.carriage);
        if self.config.uri.tls {
            // With TLS, packets must be interleaved, because anybody on the way could read datagrams.
            self.carriage = Carriage::Interleaved;
        }
        self.config.falls_back_to_udp = self.carriage == Carriage::Either;
        self.config.falls_back_to_tcp = self.carriage == Carriage::Either;
        self.server = start.address.map(|address| address.ip());
        if let Some(server) = self.server {
            self.pairs = Pairs::new(server);
        }
        let config = Arc::new(self.config.clone());
        self.machine = Some(Box::new(::rtsp::Client::play(start.now, config, self.seed.clone())));
    }

    fn handle_end(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.close(now, CloseReason::PeerClosed);
        }
        self.drain_machine(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.handle_timeout(now);
        }
        self.drain_machine(now);
        if let Intake::Granted(depackager) = &mut self.intake {
            depackager.handle_timeout(now);
            self.take_units();
        }
        self.report(now);
    }

    fn close(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.close(now, CloseReason::Requested);
        }
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        let event = self.events.pop_front();
        if event.is_none() {
            // Memory for a burst is not kept for the life of the pull.
            self.events.shrink_to(8);
        }
        event
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machine = self.machine.as_ref().and_then(|machine| machine.poll_timeout());
        let intake = match &self.intake {
            Intake::Granted(depackager) => depackager.poll_timeout(),
            Intake::None | Intake::Described { .. } => None,
        };
        [machine, intake, self.report_at].into_iter().flatten().min()
    }

    fn name(&self) -> &'static str {
        "rtsp-pull"
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn units(&mut self) -> Option<&mut dyn UnitClient> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
