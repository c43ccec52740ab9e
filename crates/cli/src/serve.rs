//! Statistics over HTTP, for Prometheus: `GET /metrics`.

use std::io::Cursor;
use std::net::ToSocketAddrs as _;
use std::time::Duration;

use tiny_http::{Header, Method, Request, Response};

use crate::failure::Failure;
use crate::live::Live;

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

pub(crate) struct Server(tiny_http::Server);

impl Server {
    /// Starts to listen; port 0 takes any that is free.
    pub(crate) fn bind(address: &str) -> Result<Server, Failure> {
        let advice = "give an address of this machine and a port, like 127.0.0.1:9184 (port 0: any that is free)";
        let mut found = address.to_socket_addrs().map_err(|error| {
            Failure::input(format_args!("\"{address}\" is no address to serve at: {error}; {advice}"))
        })?;
        let found =
            found.next().ok_or_else(|| Failure::input(format_args!("\"{address}\" has no address; {advice}")))?;
        match tiny_http::Server::http(found) {
            Ok(server) => Ok(Server(server)),
            Err(error) => Err(Failure::cannot(format_args!("cannot serve at {address}: {error}; {advice}"))),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/metrics", self.0.server_addr())
    }

    /// Answers a request, if one comes within this time.
    pub(crate) fn answer(&self, within: Duration, live: &Live) -> Result<(), Failure> {
        match self.0.recv_timeout(within) {
            Ok(Some(request)) => {
                let response = respond(&request, live);
                // The client may be gone.
                let _ = request.respond(response);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(Failure::trouble(format_args!("cannot serve any longer: {error}"))),
        }
    }
}

fn respond(request: &Request, live: &Live) -> Response<Cursor<Vec<u8>>> {
    let path = request.url().split('?').next().unwrap_or_default();
    let (status, kind, text) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => match live.stats() {
            Some(stats) => (200, METRICS, takt_report::prometheus(&stats)),
            None => (503, PLAIN, "the log has not begun\n".to_owned()),
        },
        (Method::Get | Method::Head, "/") => (200, PLAIN, "takt: the metrics are at /metrics\n".to_owned()),
        (Method::Get | Method::Head, _) => (404, PLAIN, "there is /metrics only\n".to_owned()),
        _ => (405, PLAIN, "only GET is answered\n".to_owned()),
    };
    let response = Response::from_data(text.into_bytes()).with_status_code(status);
    match Header::from_bytes("Content-Type", kind) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}
