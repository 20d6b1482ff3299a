//! Requests of peers: those that control answers, and those for blobs.

use super::Worker;
use crate::mail::{ToControl, UploadGrant, UploadNews};
use crate::protocol::{Reply, RequestEvent, RequestNews};
use crate::types::{ConnId, Handle};

impl Worker {
    /// A session says something of a request.
    pub(super) fn request_event(&mut self, id: ConnId, event: RequestEvent) {
        match event {
            RequestEvent::Client(client) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.behind = Some(client);
                }
            }
            RequestEvent::Rest { request, secure } => {
                let session = self.session_ref(id, Handle::ONLY);
                let Some(conn) = self.conns.get(id) else { return };
                let peer = conn.peer;
                self.tell(ToControl::Rest { session, peer, secure, request });
            }
            RequestEvent::Feed { request, secure } => {
                let session = self.session_ref(id, Handle::ONLY);
                let Some(conn) = self.conns.get(id) else { return };
                let peer = conn.peer;
                self.tell(ToControl::Feed { session, peer, secure, request });
            }
            RequestEvent::Locate(sought) => {
                let session = self.session_ref(id, Handle::ONLY);
                self.tell(ToControl::Locate { session, sought });
            }
            RequestEvent::NodeCall(call) => {
                let session = self.session_ref(id, Handle::ONLY);
                self.tell(ToControl::NodeCall { session, call });
            }
            RequestEvent::Upload(news) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.uploads = false;
                }
                self.tell_upload(id, news);
            }
            RequestEvent::Ask { key, let_in, question } => {
                let session = self.session_ref(id, Handle::ONLY);
                self.tell(ToControl::Ask { session, key, let_in, question });
            }
            RequestEvent::Describe { key, meta_data } => {
                self.tell(ToControl::Describe { key, meta_data });
            }
            RequestEvent::Data { key, payload } => self.tell(ToControl::Data { key, payload }),
            RequestEvent::Call(event) => {
                let session = self.session_ref(id, Handle::ONLY);
                let Some(conn) = self.conns.get_mut(id) else { return };
                conn.family.get_or_insert_default().calls = true;
                let peer = conn.client();
                self.tell(ToControl::Call { session, peer, event });
            }
            RequestEvent::Await(key) => self.await_stream(id, key),
            RequestEvent::AwaitBlob(wanted) => self.await_blob(id, &wanted),
            RequestEvent::Pass(ask) => self.ask_pass(id, *ask),
            RequestEvent::Watched(watched) => {
                self.renew_lease(id, watched);
                self.note_authenticated(id);
            }
            RequestEvent::Refused(request) => self.request_refused(id, *request),
        }
    }

    /// Control lets a session take in the body of its request.
    pub(super) fn begin_upload(&mut self, id: ConnId, grant: UploadGrant) {
        match self.conns.get_mut(id) {
            Some(conn) => conn.uploads = true,
            None => return self.tell_upload(id, UploadNews::Gone),
        }
        self.answer_session(id, Reply::Request(RequestNews::Upload(grant)));
    }

    /// Tells control what became of a file that a session took in.
    pub(super) fn tell_upload(&mut self, id: ConnId, news: UploadNews) {
        let session = self.session_ref(id, Handle::ONLY);
        self.tell(ToControl::Upload { session, news });
    }
}
