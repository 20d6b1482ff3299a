//! `/metrics`: every worker is asked, and the page is made when all workers have answered. Scrapes that arrive while
//! the workers are being asked get the same page.

use std::collections::BTreeMap;

use super::Control;
use super::answer::Reply;
use super::context::Context;
use super::mask::Requester;
use super::stats::Figures;
use crate::http::{Request, Response};
use crate::mail::ToWorker;
use crate::stats::{self, Format, Page, WorkerFigures};
use crate::types::WorkerId;

/// Maximum number of waiting scrapes.
const WAITING_MAX: usize = 64;

/// A scrape in progress.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    waiting: Vec<(Requester, Format)>,
    told: BTreeMap<WorkerId, WorkerFigures>,
}

impl Figures {
    /// Handles a request for `/metrics`.
    pub(super) fn metrics(&mut self, cx: &mut Context, requester: Requester, request: &Request) -> Reply {
        if self.scrape.waiting.len() >= WAITING_MAX {
            return Reply::Now(Response::error(503, "Too many scrapes"));
        }
        if self.scrape.waiting.is_empty() {
            cx.post_all(&ToWorker::Measure { per_stream: cx.config.server.metrics_per_stream });
        }
        let format = Format::of_accept(request.headers.all("accept"));
        self.scrape.waiting.push((requester, format));
        Reply::Later
    }
}

impl Control {
    /// Handles the counters of one worker.
    pub(super) fn measured(&mut self, worker: WorkerId, figures: WorkerFigures) {
        self.figures.scrape.told.insert(worker, figures);
        if self.figures.scrape.told.len() < usize::from(self.cx.config.workers) {
            return;
        }
        let Scrape { waiting, told } = std::mem::take(&mut self.figures.scrape);
        let (control, jobs) = (self.stats(), self.figures.jobs.clone());
        let players = self.figures.players;
        let page = stats::render(Page { control, jobs, players, workers: told.into_values().collect() });
        for (requester, format) in waiting {
            let response =
                Response::with_body(200, format.content_type(), format.of_open_metrics(page.clone()))
                    .header("Cache-Control", "no-store")
                    .header("Vary", "Accept");
            self.cx.answer(requester, response);
        }
    }
}
