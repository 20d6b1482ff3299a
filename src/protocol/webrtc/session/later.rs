//! Requests for the URL of a session.

use sdp::Description;

use super::super::extensions::{self, LayerChoice};
use super::{
    Claim, Context, Departure, Event, FamilyEvent, FromSession, Later, Message, PortEvent, Role, RtcSession,
    SessionRef, negotiation,
};

impl RtcSession {
    /// Handles a request for the session's URL. A requester that does not know the secret gets 404.
    pub(super) fn later(&mut self, ctx: &Context<'_>, from: SessionRef, secret: u64, request: &Later) {
        let answer = if secret != self.asker.secret || self.closed {
            FromSession::Answered(404, None, String::new())
        } else {
            match request {
                Later::Delete => {
                    self.end(ctx, Departure::Clean);
                    FromSession::Answered(200, None, String::new())
                }
                // An answer that is too late, or that follows another answer, gets 409. After an invalid answer,
                // the client may send another.
                Later::Answer(answer) => {
                    let status = match self.take_answer(ctx, answer) {
                        Some(Ok(())) => 204,
                        Some(Err(_)) => 400,
                        None => 409,
                    };
                    FromSession::Answered(status, None, String::new())
                }
                Later::Layers => self.layers(None),
                Later::Choose(choice) => self.layers(Some(choice)),
                Later::Patch { fragment, if_match } => self.patch(ctx, fragment, if_match.as_deref()),
            }
        };
        self.events.push_back(Event::Family(FamilyEvent::Tell { to: from, message: Message::new(answer) }));
    }

    /// Lists the layers of a viewer's video, or chooses one. Viewers of rooms have none to choose.
    fn layers(&mut self, choice: Option<&LayerChoice>) -> FromSession {
        let answered = |status, text| FromSession::Answered(status, None, text);
        let Role::Viewer(viewer) = &mut self.role else { return answered(409, String::new()) };
        let section = viewer.video_section();
        let sections = self.peer.sections();
        let mid = sections.iter().find(|one| Some(one.id) == section).map(|one| one.mid.as_str());
        match choice {
            None => answered(200, extensions::describe(viewer, mid)),
            Some(choice) => answered(choice.apply(viewer, mid), String::new()),
        }
    }

    /// Handles a PATCH with candidates or an ICE restart (RFC 9725 §4.3).
    fn patch(&mut self, ctx: &Context<'_>, fragment: &Description, if_match: Option<&str>) -> FromSession {
        let answered = |status| FromSession::Answered(status, None, String::new());
        let Some(if_match) = if_match else { return answered(428) };
        let is_any = matches!(if_match.trim(), "*" | "\"*\"");
        if !is_any && if_match.trim().trim_matches('"') != self.peer.local_fragment() {
            return answered(412);
        }
        if negotiation::restarts(fragment, self.peer.remote_fragment()) {
            return match self.peer.restart_ice(ctx.now.mono, fragment) {
                Ok(answer) => {
                    let tag = self.peer.local_fragment().to_owned();
                    self.events.push_back(Event::Port(PortEvent::Claim(Claim::Name(tag.clone()))));
                    FromSession::Answered(200, Some(tag), negotiation::fragment_of(&answer))
                }
                Err(_) => answered(400),
            };
        }
        for candidate in negotiation::candidates(fragment) {
            self.peer.add_remote(ctx.now.mono, candidate);
        }
        answered(204)
    }
}
