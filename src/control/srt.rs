//! Figures of a stream's SRT connections: every worker is asked, and the answer is made when all have told. Requests that
//! come meanwhile get the same answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Control;
use super::rest::Reply;
use crate::http::Response;
use crate::mail::ToWorker;
use crate::stats::SrtFigures;
use crate::types::{SessionRef, StreamId, WorkerId};

/// Requests that wait at a time.
const WAITING_MAX: usize = 64;

/// One stream that is asked about.
#[derive(Debug, Default)]
struct Question {
    waiting: Vec<SessionRef>,
    told: BTreeSet<WorkerId>,
    figures: Vec<SrtFigures>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct SrtQuestions {
    by_stream: BTreeMap<StreamId, Question>,
}

impl Control {
    /// A request for the figures of a live stream.
    pub(super) fn ask_srt(&mut self, session: SessionRef, stream: StreamId) -> Reply {
        let waiting: usize = self.figures.srt.by_stream.values().map(|question| question.waiting.len()).sum();
        if waiting >= WAITING_MAX {
            return Reply::Now(Response::error(503, "Too many requests wait"));
        }
        let question = self.figures.srt.by_stream.entry(stream).or_default();
        question.waiting.push(session);
        if question.waiting.len() == 1 {
            self.post_all(&ToWorker::Srt(stream));
        }
        Reply::Later
    }

    /// What one worker knows.
    pub(super) fn srt_told(&mut self, worker: WorkerId, stream: StreamId, figures: Vec<SrtFigures>) {
        let Some(question) = self.figures.srt.by_stream.get_mut(&stream) else { return };
        question.told.insert(worker);
        question.figures.extend(figures);
        if question.told.len() < usize::from(self.config.workers) {
            return;
        }
        let Some(question) = self.figures.srt.by_stream.remove(&stream) else { return };
        let list: Vec<Value> = question.figures.iter().map(to_json).collect();
        let response = Response::json(200, Value::Array(list).to_string());
        for session in question.waiting {
            self.answer(session, response.clone());
        }
    }
}

/// The members have the names of libsrt's statistics.
pub(super) fn to_json(figures: &SrtFigures) -> Value {
    let stats = &figures.stats;
    json!({
        "role": figures.role.name(),
        "peer": figures.peer.to_string(),
        "msRTT": stats.ms_rtt,
        "mbpsBandwidth": stats.mbps_bandwidth,
        "msRcvTsbPdDelay": stats.ms_rcv_tsb_pd_delay,
        "msSndTsbPdDelay": stats.ms_snd_tsb_pd_delay,
        "pktFlightSize": stats.pkt_flight_size,
        "pktSent": stats.pkt_sent,
        "pktSentUnique": stats.pkt_sent_unique,
        "pktRetrans": stats.pkt_retrans,
        "pktSndLoss": stats.pkt_snd_loss,
        "pktSndDrop": stats.pkt_snd_drop,
        "pktSndBuf": stats.pkt_snd_buf,
        "byteSndBuf": stats.byte_snd_buf,
        "msSndBuf": stats.ms_snd_buf,
        "pktRecv": stats.pkt_recv,
        "pktRecvUnique": stats.pkt_recv_unique,
        "pktRcvLoss": stats.pkt_rcv_loss,
        "pktRcvDrop": stats.pkt_rcv_drop,
        "pktRcvRetrans": stats.pkt_rcv_retrans,
        "pktRcvBelated": stats.pkt_rcv_belated,
        "pktRcvUndecrypt": stats.pkt_rcv_undecrypt,
        "pktRcvBuf": stats.pkt_rcv_buf,
        "byteRcvBuf": stats.byte_rcv_buf,
        "pktSentACK": stats.pkt_sent_ack,
        "pktRecvACK": stats.pkt_recv_ack,
        "pktSentNAK": stats.pkt_sent_nak,
        "pktRecvNAK": stats.pkt_recv_nak,
        "byteSent": stats.byte_sent,
        "byteSentUnique": stats.byte_sent_unique,
        "byteRetrans": stats.byte_retrans,
        "byteRecv": stats.byte_recv,
        "byteRecvUnique": stats.byte_recv_unique,
    })
}
