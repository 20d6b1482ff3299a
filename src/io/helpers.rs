//! Threads for names. Each request is answered, in any order.

use std::net::ToSocketAddrs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::office::{Desk, OfficeMail};
use crate::control::{ResolveRequest, Resolved};

/// Resolver threads: a silent name server holds one each until it times out.
const RESOLVERS: usize = 4;
/// Answers that are taken of one name.
const ADDRESSES_MAX: usize = 8;

/// Starts the resolvers. Dropping the sender ends them.
pub(super) fn start_resolvers(desk: &Desk) -> std::io::Result<Sender<ResolveRequest>> {
    let (requests, queue) = channel::<ResolveRequest>();
    let queue = Arc::new(Mutex::new(queue));
    for index in 0..RESOLVERS {
        let (queue, desk) = (Arc::clone(&queue), desk.clone());
        thread::Builder::new().name(format!("resolver-{index}")).spawn(move || resolve_all(&queue, &desk))?;
    }
    Ok(requests)
}

fn resolve_all(queue: &Mutex<Receiver<ResolveRequest>>, desk: &Desk) {
    loop {
        let request = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(request) = request else { return };
        let result = (request.host.as_str(), request.port).to_socket_addrs();
        let result = result
            .map(|addresses| addresses.take(ADDRESSES_MAX).collect())
            .map_err(|error| error.to_string());
        desk.send(OfficeMail::Resolved(Resolved { id: request.id, result }));
    }
}
