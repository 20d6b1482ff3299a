//! Requests that another node of the cluster should answer (docs/cluster.md): requests for a recording whose file is at
//! that node, for the picture of a stream that is live there only and, with `cluster.redirect`, also requests to play or
//! publish such a stream.
//!
//! Control knows which node it is ([`RequestEvent::Locate`]). The client is redirected to the node's public address,
//! with the path and query of its request.

use url::Url;

use super::files::FilePath;
use super::mounts::{Asked, Handler};
use super::responder::{Link, Next, Responder};
use crate::http::{Method, Response};
use crate::mail::Sought;
use crate::protocol::{Context, Event, Reply, RequestEvent, RequestNews};
use crate::types::StreamKey;

/// Extensions of playlists. A request for a playlist is the beginning of playing.
const LISTS: [&str; 2] = ["m3u8", "mpd"];
/// Extensions of recordings.
const FILES: [&str; 6] = ["mp4", "webm", "mov", "avi", "mp3", "wmv"];

/// End of the path of a call that answers with the picture of a stream.
const SNAPSHOT: &str = "/snapshot";

/// Returns the stream or file of a request that another node may have to answer; `None` if this node answers the
/// request.
pub(super) fn subject(ctx: &Context<'_>, asked: &Asked) -> Option<Sought> {
    if !ctx.server.in_cluster {
        return None;
    }
    let request = &asked.request;
    let reads = matches!(request.method, Method::Get | Method::Head);
    // Mounts of protocols capture the id of the stream.
    let (app, id) = (request.path.split('/').nth(1).unwrap_or_default(), asked.name("id"));
    if !id.is_empty() && ctx.apps.contains_key(app) {
        let begins = reads || request.method == Method::Post;
        let is_upgrade = request.headers.has_token("connection", "upgrade");
        let key = StreamKey::new(app, id);
        let is_picture = request.path.split('/').nth(2) == Some("rest") && request.path.ends_with(SNAPSHOT);
        if is_picture {
            return reads.then_some(Sought::Picture(key));
        }
        return (ctx.server.redirects && begins && !is_upgrade).then_some(Sought::Stream(key));
    }
    let file = FilePath::of(&request.path, ctx.apps).ok().filter(|file| reads && file.is_stream())?;
    let [app, below @ ..] = file.segments.as_slice() else { return None };
    let (stem, ending) = below.last()?.rsplit_once('.')?;
    if LISTS.contains(&ending) {
        return ctx.server.redirects.then(|| Sought::Stream(StreamKey::new(app, stream_of(stem))));
    }
    if file.is_picture() {
        return Some(Sought::Picture(StreamKey::new(app, stem)));
    }
    FILES.contains(&ending).then(|| Sought::File { app: app.as_str().into(), path: below.join("/") })
}

/// Returns the id of the stream of a playlist named `{id}`, `{id}_adaptive` or `{id}__{track}`.
fn stream_of(stem: &str) -> &str {
    let stem = stem.strip_suffix("_adaptive").unwrap_or(stem);
    stem.rsplit_once("__").map_or(stem, |(id, _)| id)
}

/// Asks control which node should answer a request. The handler of the request starts afterwards, if it is this node.
#[derive(Debug)]
pub(super) struct Redirect {
    asked: Option<Box<(Handler, Asked)>>,
}

impl Redirect {
    pub(super) fn begin(link: &mut Link, sought: Sought, handler: Handler, asked: Asked) -> Self {
        link.tell(Event::Request(RequestEvent::Locate(sought)));
        Self { asked: Some(Box::new((handler, asked))) }
    }
}

impl Responder for Redirect {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        let Reply::Request(RequestNews::Response(response)) = reply else { return Next::Stay };
        let Some(asked) = self.asked.take() else { return Next::Over };
        let (_, Asked { request, fields, .. }) = &*asked;
        let address = response.headers.get("location").and_then(|base| {
            let mut url = Url::parse(base).ok()?;
            url.set_path(&request.path);
            if !request.query.is_empty() {
                url.query_pairs_mut().extend_pairs(&request.query);
            }
            Some(url)
        });
        let Some(address) = address else { return Next::Route(asked) };
        // With 307, unlike 302, the client sends the body again (RFC 9110 §15.4.8).
        let status = if request.method == Method::Post { 307 } else { 302 };
        link.respond(ctx.now, fields, Response::empty(status).header("Location", address));
        Next::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_their_stream() {
        for (stem, id) in [
            ("s", "s"),
            ("s_adaptive", "s"),
            ("s__master", "s"),
            ("s__master_adaptive", "s"),
            ("a__b__video", "a__b"),
        ] {
            assert_eq!(stream_of(stem), id, "{stem}");
        }
    }
}
