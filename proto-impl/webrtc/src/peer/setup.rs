//! Session descriptions and candidates.

use std::net::SocketAddr;
use std::time::Instant;

use crypto::Random;
use sdp::{Attribute, Description, Formats, Media, MediaKind, PayloadType};

use super::Peer;
use crate::config::IceMode;
use crate::error::Error;
use crate::negotiate::{
    self, Local, MediaPreference, Negotiated, Offers, PORT_DISCARD, PROTOCOL, Section, SectionFormat,
    SectionId, SourcePair, read_candidate,
};
use crate::receive::{Reception, Wishes};
use crate::send::Sender;
use crate::transport::Agent;

/// Session descriptions of both sides, and the result of the negotiation.
#[derive(Debug)]
pub(super) struct Negotiation {
    fingerprint: sdp::Fingerprint,
    /// CNAME of this session's sources (RFC 7022).
    pub(super) cname: String,
    session_id: u64,
    version: u64,
    restarts: u64,
    /// The peer's ICE user name fragment. A change means an ICE restart.
    pub(super) remote_fragment: String,
    /// Our offer that has not been answered yet, and its sources.
    offered: Option<(Description, Vec<Option<SourcePair>>)>,
    /// Sections and payload types of our offers so far.
    offers: Offers,
    pub(super) sections: Vec<Section>,
    /// True if data channels are accepted and offered.
    pub(super) takes_data: bool,
}

impl Negotiation {
    /// Creates the state before any description.
    pub(super) fn new(fingerprint: sdp::Fingerprint, random: &mut Random) -> Self {
        Self {
            fingerprint,
            cname: format!("{:016x}", random.u64()),
            // A session id has 63 bits (RFC 8829 §5.2.1).
            session_id: random.u64() >> 1,
            version: 0,
            restarts: 0,
            remote_fragment: String::new(),
            offered: None,
            offers: Offers::default(),
            sections: Vec::new(),
            takes_data: false,
        }
    }
}

impl Peer {
    /// Answers the peer's offer. `preference` returns our preferences for each of its media sections, or `None` to
    /// reject the section.
    ///
    /// A later offer may restart ICE (RFC 8445 §9) for the same sections with new credentials;
    /// [`Peer::local_fragment`] then changes too. The DTLS association keeps its roles (RFC 8842 §5.3): if the
    /// offer leaves them open, the answer states ours. Other changes are refused, unless
    /// [`Config::takes_changes`](crate::Config::takes_changes) is set.
    ///
    /// # Errors
    ///
    /// Fails if the offer cannot be accepted. The session is then unchanged, and another offer may follow.
    pub fn handle_offer(
        &mut self,
        now: Instant,
        offer: &Description,
        preference: impl FnMut(SectionId, &Media) -> Option<MediaPreference>,
    ) -> Result<Description, Error> {
        if self.negotiation.offered.is_some() || self.transport.is_closed() {
            return Err(Error::State);
        }
        let known = self.known_sources();
        if self.transport.opens_association().is_some() {
            return self.answer_later(now, offer, preference, &known);
        }
        let mut random = self.random.clone();
        let (answer, negotiated) = self.answer(offer, preference, &known, &mut random)?;
        self.random = random;
        self.begin(now, negotiated);
        Ok(answer)
    }

    /// Answers a later offer of the peer.
    fn answer_later(
        &mut self,
        now: Instant,
        offer: &Description,
        mut preference: impl FnMut(SectionId, &Media) -> Option<MediaPreference>,
        known: &[(SectionId, SourcePair)],
    ) -> Result<Description, Error> {
        let takes_changes = self.config.takes_changes;
        let wanted = |id: SectionId, media: &Media| {
            let known = self.negotiation.sections.iter().find(|section| section.id == id);
            let same = |known: &&Section| media.attributes.mid().unwrap_or_default() == known.mid;
            match known.filter(|known| !takes_changes || same(known)) {
                Some(section) => Some(repeated(section)),
                None => preference(id, media).filter(|_| takes_changes),
            }
        };
        // Uses a copy of the random state, so that a refused offer leaves the session unchanged.
        let mut random = self.random.clone();
        let (mut answer, negotiated) = self.answer(offer, wanted, known, &mut random)?;
        let is_same = same_sections(&negotiated.sections, &self.negotiation.sections);
        let restarts = negotiated.remote.ufrag() != self.negotiation.remote_fragment;
        if !is_same && (restarts || !takes_changes) {
            return Err(Error::State);
        }
        if !self.transport.keeps_association(&negotiated) {
            return Err(Error::NewAssociation);
        }
        self.negotiation.version = self.negotiation.version.saturating_add(1);
        if restarts {
            return self.answer_restart(now, offer, known);
        }
        if is_same {
            self.begin_data(now, negotiated.data, negotiated.dtls_client);
        } else {
            self.random = random;
            self.change(now, negotiated);
        }
        answer.origin.version = self.negotiation.version;
        Ok(answer)
    }

    /// Answers an offer that restarts ICE and has the same sections.
    fn answer_restart(
        &mut self,
        now: Instant,
        offer: &Description,
        known: &[(SectionId, SourcePair)],
    ) -> Result<Description, Error> {
        self.negotiation.restarts = self.negotiation.restarts.saturating_add(1);
        let seed = self.seed.derive("ice", self.negotiation.restarts);
        self.transport.agent_mut().restart(now, &seed);
        let wanted = |id: SectionId, _: &Media| {
            self.negotiation.sections.iter().find(|section| section.id == id).map(repeated)
        };
        let (answer, negotiated) = self.answer(offer, wanted, known, &mut self.random.clone())?;
        negotiated.remote.ufrag().clone_into(&mut self.negotiation.remote_fragment);
        self.transport.set_negotiated(now, &negotiated);
        self.begin_data(now, negotiated.data, negotiated.dtls_client);
        self.take_transport_events(now);
        Ok(answer)
    }

    fn answer(
        &self,
        offer: &Description,
        preference: impl FnMut(SectionId, &Media) -> Option<MediaPreference>,
        known: &[(SectionId, SourcePair)],
        random: &mut Random,
    ) -> Result<(Description, Negotiated), Error> {
        let candidates = self.local_candidates();
        let active = self.transport.opens_association().unwrap_or(self.config.dtls_client);
        let mut local = self.local(&candidates, known, random);
        negotiate::answer(offer, preference, active, &mut local)
    }

    /// Returns the number of sections in our offers so far, including that of data channels.
    #[must_use]
    pub const fn offered_sections(&self) -> usize {
        self.negotiation.offers.len()
    }

    /// Offers a section for each preference. Pass the answer to [`Peer::handle_answer`].
    ///
    /// A later offer must contain the sections of the previous one at the same places, and may append more. If
    /// a preference has no formats, its section is withdrawn: the peer ends the track, and the place may be
    /// reused later. Formats keep their payload types; sections may share them. Later offers must not add
    /// sections that receive.
    ///
    /// # Errors
    ///
    /// Fails if an offer has not been answered yet or the peer made the first one, or if a later offer receives
    /// or has fewer sections than the previous one.
    pub fn offer(&mut self, preferences: &[(MediaKind, MediaPreference)]) -> Result<Description, Error> {
        let is_later = self.negotiation.offers.len() > 0;
        let is_answerer = !is_later && self.transport.opens_association().is_some();
        let receives = |(_, preference): &(MediaKind, MediaPreference)| preference.direction.receives();
        let takes_more =
            preferences.len() < self.negotiation.offers.len() || preferences.iter().any(receives);
        if self.negotiation.offered.is_some()
            || is_answerer
            || (is_later && takes_more)
            || self.transport.is_closed()
        {
            return Err(Error::State);
        }
        self.negotiation.version = self.negotiation.version.saturating_add(u64::from(is_later));
        let candidates = self.local_candidates();
        let (mut random, mut offers) = (self.random.clone(), self.negotiation.offers.clone());
        let known = self.known_sources();
        let mut local = self.local(&candidates, &known, &mut random);
        let (offer, sources) = negotiate::offer(preferences, &mut offers, &mut local);
        (self.random, self.negotiation.offers) = (random, offers);
        self.negotiation.offered = Some((offer.clone(), sources));
        Ok(offer)
    }

    /// Returns the local sources already assigned to sections.
    fn known_sources(&self) -> Vec<(SectionId, SourcePair)> {
        let sections = self.negotiation.sections.iter();
        sections.filter_map(|section| Some((section.id, section.local_source?))).collect()
    }

    /// Handles the answer to our offer.
    ///
    /// # Errors
    ///
    /// Fails if no offer is open or the answer does not match it; another answer may follow.
    /// [`Error::NewAssociation`] if the answer requires another DTLS association than the session has.
    pub fn handle_answer(&mut self, now: Instant, answer: &Description) -> Result<(), Error> {
        let open = self.negotiation.offered.as_ref().filter(|_| !self.transport.is_closed());
        let (offer, sources) = open.ok_or(Error::State)?;
        let negotiated = negotiate::accept_answer(offer, sources, answer)?;
        let is_later = self.transport.opens_association().is_some();
        let is_same = negotiated.remote.ufrag() == self.negotiation.remote_fragment
            && self.transport.keeps_association(&negotiated);
        if is_later && !is_same {
            return Err(Error::NewAssociation);
        }
        self.negotiation.offered = None;
        if is_later {
            self.change(now, negotiated);
        } else {
            self.begin(now, negotiated);
        }
        Ok(())
    }

    /// Applies the sections of a later answer: unchanged sections continue, others begin or end.
    fn change(&mut self, now: Instant, negotiated: Negotiated) {
        self.begin_data(now, negotiated.data, negotiated.dtls_client);
        let former = std::mem::take(&mut self.negotiation.sections);
        let goes_on = |new: &Section| {
            let same = |old: &&Section| {
                old.id == new.id && old.mid == new.mid && old.local_source == new.local_source
            };
            former.iter().find(same).cloned()
        };
        let sections: Vec<Section> =
            negotiated.sections.into_iter().map(|new| goes_on(&new).unwrap_or(new)).collect();
        let has =
            |ssrc| sections.iter().any(|section| section.local_source.is_some_and(|own| own.ssrc == ssrc));
        let (stay, gone): (Vec<Sender>, Vec<Sender>) = std::mem::take(&mut self.sending.senders)
            .into_iter()
            .partition(|sender| has(sender.ssrc().value()));
        self.sending.senders = stay;
        for section in &sections {
            if self.sending.of(section.id).is_none()
                && let Some(sender) = Sender::new(section, &self.config, &mut self.random)
            {
                self.sending.senders.push(sender);
            }
        }
        if self.sending.senders.iter().any(Sender::is_numbered) && !self.sending.bandwidth.numbers_packets() {
            self.sending.bandwidth.number_packets(now);
        }
        let wishes = Wishes::of(&self.config);
        match &mut self.reception {
            Some(reception) => reception.change(now, &sections, wishes),
            None if sections.iter().any(|section| section.direction.receives()) => {
                self.reception = Some(Box::new(Reception::new(now, &sections, wishes)));
            }
            None => {}
        }
        self.negotiation.sections = sections;
        self.end_sources(&gone);
    }

    /// Restarts ICE (RFC 8445 §9) with the credentials in an SDP fragment (RFC 8840 §9). Returns
    /// the SDP fragment to answer with. [`Peer::local_fragment`] then changes.
    ///
    /// # Errors
    ///
    /// Fails if no description was negotiated yet, or the fragment has no credentials. The session is then
    /// unchanged.
    pub fn restart_ice(&mut self, now: Instant, fragment: &Description) -> Result<Description, Error> {
        let first =
            self.negotiation.sections.first().filter(|_| !self.transport.is_closed()).ok_or(Error::State)?;
        let types = first.formats.iter().map(SectionFormat::payload_type).collect();
        let mut section = Media::new(first.kind.clone(), PORT_DISCARD, PROTOCOL, Formats::Rtp(types));
        let of = fragment.transport(fragment.media.first().unwrap_or(&section));
        let (Some(ufrag), Some(pwd)) = (of.ufrag, of.pwd) else { return Err(Error::NoIceCredentials) };
        let remote = ice::Credentials::new(ufrag, pwd).map_err(|_| Error::NoIceCredentials)?;
        self.negotiation.restarts = self.negotiation.restarts.saturating_add(1);
        let seed = self.seed.derive("ice", self.negotiation.restarts);
        self.transport.agent_mut().restart(now, &seed);
        self.transport.agent_mut().set_remote(now, &remote, fragment.is_ice_lite());
        remote.ufrag().clone_into(&mut self.negotiation.remote_fragment);
        self.take_transport_events(now);
        section.attributes.push(Attribute::Mid(
            self.negotiation.sections.first().map(|one| one.mid.clone()).unwrap_or_default(),
        ));
        let credentials = self.transport.agent().local();
        section.attributes.push(Attribute::IceUfrag(credentials.ufrag().to_owned()));
        section.attributes.push(Attribute::IcePwd(credentials.password().to_owned()));
        for candidate in self.local_candidates() {
            section
                .attributes
                .push(Attribute::Candidate(Box::new(negotiate::describe_candidate(&candidate))));
        }
        section.attributes.push(Attribute::EndOfCandidates);
        Ok(Description { media: vec![section], ..Description::default() })
    }

    /// Fixes the format in which a section sends, and frees its other formats, which take half of a viewer's
    /// memory. Must be called before the first unit; without it, the first format is used. Returns false if
    /// the section does not send, lacks the format, or has already sent a unit in another format.
    pub fn settle(&mut self, now: Instant, id: SectionId, payload_type: PayloadType) -> bool {
        let Some(section) = self.negotiation.sections.iter_mut().find(|section| section.id == id) else {
            return false;
        };
        let Some(sender) = self.sending.senders.iter_mut().find(|sender| sender.section == id) else {
            return false;
        };
        let Some(at) = section.formats.iter().position(|format| format.payload_type() == payload_type) else {
            return false;
        };
        if at > 0 {
            if sender.has_begun() {
                return false;
            }
            section.formats.swap(0, at);
            let Some(settled) = Sender::new(section, &self.config, &mut self.random) else { return false };
            if settled.is_numbered() && !self.sending.bandwidth.numbers_packets() {
                self.sending.bandwidth.number_packets(now);
            }
            *sender = settled;
        }
        section.formats.truncate(1);
        section.formats.shrink_to_fit();
        true
    }

    /// Switches a section to another of its formats, from the next unit on, and keeps all formats. For a
    /// section that several streams share in turn ([`Peer::vacate`]). Returns false if the section does not
    /// send or lacks the format, or if the format has a different clock rate.
    pub fn occupy(&mut self, now: Instant, id: SectionId, payload_type: PayloadType) -> bool {
        let Some(section) = self.negotiation.sections.iter_mut().find(|section| section.id == id) else {
            return false;
        };
        let Some(sender) = self.sending.senders.iter_mut().find(|sender| sender.section == id) else {
            return false;
        };
        let Some(at) = section.formats.iter().position(|format| format.payload_type() == payload_type) else {
            return false;
        };
        section.formats.swap(0, at);
        if !sender.take_format(section, self.config.playout_delay) {
            section.formats.swap(0, at);
            return false;
        }
        if sender.is_numbered() && !self.sending.bandwidth.numbers_packets() {
            self.sending.bandwidth.number_packets(now);
        }
        true
    }

    fn begin(&mut self, now: Instant, negotiated: Negotiated) {
        self.sending.senders = negotiated
            .sections
            .iter()
            .filter_map(|section| Sender::new(section, &self.config, &mut self.random))
            .collect();
        if self.sending.senders.iter().any(Sender::is_numbered) {
            self.sending.bandwidth.number_packets(now);
        }
        if negotiated.sections.iter().any(|section| section.direction.receives()) {
            let reception = Reception::new(now, &negotiated.sections, Wishes::of(&self.config));
            self.reception = Some(Box::new(reception));
        }
        if let Some(first) = self.sending.senders.first() {
            self.reports.ssrc = first.ssrc();
        }
        self.reports.reduced_size = negotiated.sections.iter().all(|section| section.reduced_size);
        negotiated.remote.ufrag().clone_into(&mut self.negotiation.remote_fragment);
        self.begin_data(now, negotiated.data, negotiated.dtls_client);
        self.transport.set_negotiated(now, &negotiated);
        self.negotiation.sections = negotiated.sections;
        self.take_transport_events(now);
    }

    /// Holds a lite agent's wait for a path ([`ice::LiteConfig::connect_timeout`]), if the description that
    /// [`Peer::handle_offer`] or [`Peer::offer`] returns is not sent at once. The owner limits the time until
    /// [`Peer::begin_wait`].
    pub fn hold_wait(&mut self) {
        self.transport.agent_mut().hold_wait();
    }

    /// Begins the wait for a path if it is held, because our description is sent.
    pub fn begin_wait(&mut self, now: Instant) {
        self.transport.agent_mut().begin_wait(now);
    }

    /// Adds a local socket address to a full agent, and returns its candidate.
    ///
    /// # Errors
    ///
    /// Errors of [`ice::Agent::add_local`]. Also fails for a lite agent, whose addresses are in its configuration.
    pub fn add_local(&mut self, now: Instant, address: SocketAddr) -> Result<ice::Candidate, ice::Error> {
        match self.transport.agent_mut() {
            Agent::Full(agent) => agent.add_local(now, address),
            Agent::Lite(_) => Err(ice::Error::UnusableCandidate),
        }
    }

    /// Adds a trickled candidate of the peer (RFC 8838). Host names and unusable candidates are ignored,
    /// because the peer's connectivity checks reveal its addresses.
    pub fn add_remote(&mut self, now: Instant, candidate: &sdp::Candidate) {
        if let Some(candidate) = read_candidate(candidate) {
            self.transport.agent_mut().add_remote(now, &candidate);
        }
    }

    fn local_candidates(&self) -> Vec<ice::Candidate> {
        match (&self.config.ice, self.transport.agent()) {
            (IceMode::Lite { addresses, .. }, _) => {
                let passive = self.config.tcp.then_some(ice::Transport::Tcp(ice::TcpType::Passive));
                let of = |transport| {
                    let hosts = (0..=u16::MAX).rev().zip(addresses);
                    hosts.map(move |(order, address)| ice::Candidate::host(transport, *address, order))
                };
                std::iter::once(ice::Transport::Udp).chain(passive).flat_map(of).collect()
            }
            (IceMode::Full(_), Agent::Full(agent)) => agent.local_candidates().copied().collect(),
            (IceMode::Full(_), Agent::Lite(_)) => Vec::new(),
        }
    }

    fn local<'a>(
        &'a self,
        candidates: &'a [ice::Candidate],
        known: &'a [(SectionId, SourcePair)],
        random: &'a mut Random,
    ) -> Local<'a> {
        Local {
            credentials: self.transport.agent().local(),
            fingerprint: &self.negotiation.fingerprint,
            candidates,
            is_lite: matches!(self.config.ice, IceMode::Lite { .. }),
            origin: (self.negotiation.session_id, self.negotiation.version),
            cname: &self.negotiation.cname,
            data: self.negotiation.takes_data.then_some(&*self.config.sctp),
            takes_changes: self.config.takes_changes,
            audio_levels: self.config.audio_levels,
            spatial_layers: self.config.spatial_layers,
            known,
            random,
        }
    }
}

/// Returns the preference that reproduces a negotiated section.
fn repeated(section: &Section) -> MediaPreference {
    let formats = section.formats.iter().map(|format| format.local.clone()).collect();
    MediaPreference { direction: section.direction, formats, msid: section.msid.clone() }
}

/// True if a later offer has the same sections as the first.
fn same_sections(new: &[Section], old: &[Section]) -> bool {
    let same = |(new, old): (&Section, &Section)| {
        new.id == old.id && new.mid == old.mid && new.kind == old.kind && new.direction == old.direction
    };
    new.len() == old.len() && new.iter().zip(old).all(same)
}
