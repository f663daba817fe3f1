//! The page for a first chat in the browser: three files inside the binary.
//!
//! Owns: the files and the policy they are served under.
//! Always true: the page loads nothing from anywhere else, runs no script but its own, and stands in no frame; it is
//! served without a key, because a browser cannot show one, and holds nothing secret.
//! Not here: the chat itself, for which the page asks `/v1/chat/completions` like any client.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Paths of the files.
pub const PATHS: [&str; 3] = ["/", "/page.css", "/page.js"];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// `GET /`.
pub async fn html() -> Response {
    file("text/html; charset=utf-8", include_str!("page.html"))
}

/// `GET /page.css`.
pub async fn css() -> Response {
    file("text/css; charset=utf-8", include_str!("page.css"))
}

/// `GET /page.js`.
pub async fn js() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page.js"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
