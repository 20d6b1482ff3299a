//! Requests of peers: those that control answers, and those for blobs.

use super::Worker;
use super::conns::Conns;
use super::turn::Turn;
use crate::mail::{ToControl, UploadGrant, UploadNews};
use crate::protocol::{Reply, RequestEvent, RequestNews};
use crate::types::{ConnId, Handle};

impl Worker {
    /// Handles an event of a session about a request.
    pub(super) fn request_event(&mut self, id: ConnId, event: RequestEvent) {
        match event {
            RequestEvent::Client(client) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.behind = Some(client);
                }
            }
            RequestEvent::Rest { request, secure } => {
                let session = self.turn.session_ref(id, Handle::ONLY);
                let Some(conn) = self.conns.get(id) else { return };
                let peer = conn.peer;
                self.turn.tell(ToControl::Rest { session, peer, secure, request });
            }
            RequestEvent::Feed { request, secure } => {
                let session = self.turn.session_ref(id, Handle::ONLY);
                let Some(conn) = self.conns.get(id) else { return };
                let peer = conn.peer;
                self.turn.tell(ToControl::Feed { session, peer, secure, request });
            }
            RequestEvent::Locate(sought) => {
                let session = self.turn.session_ref(id, Handle::ONLY);
                self.turn.tell(ToControl::Locate { session, sought });
            }
            RequestEvent::NodeCall(call) => {
                let session = self.turn.session_ref(id, Handle::ONLY);
                self.turn.tell(ToControl::NodeCall { session, call });
            }
            RequestEvent::Upload(news) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.uploads = false;
                }
                self.turn.tell_upload(id, news);
            }
            RequestEvent::Ask { key, let_in, question } => {
                let session = self.turn.session_ref(id, Handle::ONLY);
                let Some(peer) = self.conns.get(id).map(|conn| conn.client()) else { return };
                self.turn.tell(ToControl::Ask { session, peer, key, let_in, question });
            }
            RequestEvent::Describe { key, meta_data } => {
                self.turn.tell(ToControl::Describe { key, meta_data });
            }
            RequestEvent::Data { key, payload } => {
                let sender = self.turn.session_ref(id, Handle::ONLY);
                self.turn.tell(ToControl::Data { sender, key, payload });
            }
            RequestEvent::Call(event) => {
                let session = self.turn.session_ref(id, Handle::ONLY);
                let Some(conn) = self.conns.get_mut(id) else { return };
                conn.family.get_or_insert_default().calls = true;
                let peer = conn.client();
                self.turn.tell(ToControl::Call { session, peer, event });
            }
            RequestEvent::Await(key) => self.live.await_stream(&self.conns, id, key),
            RequestEvent::AwaitBlob(wanted) => {
                self.polled.await_blob(&mut self.turn, &mut self.conns, &self.live, id, &wanted)
            }
            RequestEvent::Pass(ask) => {
                self.polled.ask_pass(&mut self.turn, &mut self.conns, &self.live, id, *ask)
            }
            RequestEvent::Watched(watched) => {
                self.polled.renew_lease(&mut self.turn, &self.conns, &self.live, id, watched);
                self.conns.note_authenticated(&mut self.turn, id);
            }
            RequestEvent::Refused(request) => self.conns.request_refused(id, *request),
        }
    }
}

impl Conns {
    /// Starts the upload of a request's body. Control has granted the upload.
    pub(super) fn begin_upload(&mut self, turn: &mut Turn, id: ConnId, grant: UploadGrant) {
        match self.get_mut(id) {
            Some(conn) => conn.uploads = true,
            None => return turn.tell_upload(id, UploadNews::Gone),
        }
        self.answer_session(turn, id, Reply::Request(RequestNews::Upload(grant)));
    }
}

impl Turn {
    /// Reports the outcome of an upload to control.
    pub(super) fn tell_upload(&mut self, id: ConnId, news: UploadNews) {
        let session = self.session_ref(id, Handle::ONLY);
        self.tell(ToControl::Upload { session, news });
    }
}
