//! The gate that every route stands behind: Host, Origin, token and role come
//! before anything else.

use std::{convert::Infallible, future::ready, net::IpAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header},
    response::Response,
    routing::future::RouteFuture,
};
use futures_util::{
    FutureExt as _, TryFutureExt as _,
    future::{BoxFuture, Either},
};
use hyper::body::Incoming;
use tower_service::Service as _;

use super::{
    Hub,
    admission::ConnectionSlot,
    audit::{self, Maker},
    console, mcp, openai, refusal,
    routes::{self, Rule, Rules, Verdict},
};
use crate::access::{Denied, Principal};

/// The router behind its gate.
#[derive(Clone, Debug)]
pub struct Guarded {
    hub: Arc<Hub>,
    rules: Rules,
    router: Router,
    /// Who is at the other end; absent from this machine without an address.
    from: Option<IpAddr>,
    /// The place of the connection, where connections are bounded.
    slot: Option<Arc<ConnectionSlot>>,
}

/// A request that was let in.
struct Admitted {
    /// Nobody in particular where everyone may.
    principal: Option<Principal>,
    /// The rule of a change, which is noted.
    change: Option<Rule>,
    /// Whether it counts against the limits of who asks.
    counted: bool,
}

type Answer = Either<BoxFuture<'static, Result<Response, Infallible>>, RouteFuture<Infallible>>;

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address(pub(super) Option<IpAddr>);

/// Why a request goes no further, or not yet.
enum Stopped {
    /// This is the answer.
    Refused(Box<Response>),
    /// Its token was signed with a key that we have not seen yet.
    UnknownKey,
}

impl Guarded {
    /// Every route, guarded.
    pub fn new(hub: Arc<Hub>) -> Self {
        let (rules, router) = routes::build(&hub);
        Self {
            hub,
            rules,
            router,
            from: None,
            slot: None,
        }
    }

    /// The same for one connection from this address.
    pub(super) fn seen_from(&self, from: IpAddr, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            from: Some(from),
            slot: Some(slot),
            ..self.clone()
        }
    }

    /// The place of the connection that is served.
    pub(super) fn slot(&self) -> Option<&Arc<ConnectionSlot>> {
        self.slot.as_ref()
    }

    /// Who asks; nobody in particular where everyone may.
    fn admit(&self, request: &Request<Incoming>) -> Result<Admitted, Stopped> {
        let path = request.uri().path();
        self.hub
            .changeable()
            .gate
            .check(request.uri(), request.headers())
            .map_err(|(status, why)| refusal::plain(path, status, why))?;
        let verdict = self.rules.find(request.method(), path);
        if matches!(verdict, Verdict::Rule(rule) if rule.needs.is_none()) {
            return Ok(Admitted {
                principal: None,
                change: None,
                counted: false,
            });
        }
        let headers = request.headers();
        if headers
            .get_all(header::AUTHORIZATION)
            .iter()
            .nth(1)
            .is_some()
        {
            // Whoever reads the other one would see another caller.
            let why = "there is more than one Authorization header; send one";
            return Err(refusal::plain(path, StatusCode::BAD_REQUEST, why).into());
        }
        let shows_token = headers.contains_key(header::AUTHORIZATION);
        let token = headers.get(header::AUTHORIZATION);
        // OpenAI's clients cannot do without a key; this one stands for none.
        let token = token.filter(|it| !(path.starts_with("/v1/") && *it == "Bearer local"));
        let access = &self.hub.access;
        let takes_cookie = matches!(verdict, Verdict::Rule(rule) if rule.takes_cookie());
        let identified = if takes_cookie && !shows_token {
            self.hub.identify(headers)
        } else {
            access.identify(token.map(HeaderValue::as_bytes))
        };
        let by_cookie =
            || takes_cookie && !shows_token && console::cookie(&self.hub, headers).is_some();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let principal = match identified {
            Ok(_) if !reads && by_cookie() && !headers.contains_key(routes::FROM_CONSOLE) => {
                let why = "a change by cookie needs the header x-maru-console";
                return Err(refusal::plain(path, StatusCode::FORBIDDEN, why).into());
            }
            Ok(principal) => principal,
            Err(Denied::UnknownKey) => return Err(Stopped::UnknownKey),
            Err(denied) => return Err(refusal::unauthorized(path, access, &denied).into()),
        };
        if let Some(slot) = &self.slot
            && slot.identify(!principal.is_local()).is_err()
        {
            return Err(refusal::too_many_connections(path).into());
        }
        match verdict {
            Verdict::Rule(rule) if rule.admits(&principal) => Ok(Admitted {
                principal: Some(principal),
                change: rule.is_change().then(|| rule.clone()),
                counted: rule.counted,
            }),
            Verdict::Rule(_) if token.is_none() => {
                Err(refusal::unauthorized(path, access, &Denied::Missing).into())
            }
            Verdict::Rule(rule) => {
                let refusal = refusal::forbidden(path, access, rule, &principal);
                let rule = rule.clone();
                let maker = Maker {
                    principal,
                    from: self.from,
                    rule,
                };
                maker.refused(&self.hub, path);
                Err(refusal.into())
            }
            Verdict::OtherMethods(known) => Err(refusal::other_methods(path, &known).into()),
            Verdict::Nothing => Err(refusal::nothing_here(path).into()),
        }
    }

    /// Passes a request on that was let in.
    fn pass(&self, admitted: Admitted, request: Request<Incoming>) -> Answer {
        let Some(principal) = admitted.principal else {
            return Either::Right(self.router.clone().call(request.map(Body::new)));
        };
        // The busiest addresses need no routing, and their bodies no box.
        if request.method() == Method::POST && request.uri().path() == "/mcp" {
            let hub = Arc::clone(&self.hub);
            let from = self.from;
            return Either::Left(
                mcp::post_all(hub, (principal, from), request)
                    .map(Ok)
                    .boxed(),
            );
        }
        if admitted.counted {
            let model = self.clone().count_and_pass(principal, request);
            return Either::Left(model.boxed());
        }
        let request = self.signed(principal.clone(), request);
        if let Some(rule) = admitted.change {
            let maker = Maker {
                principal,
                from: self.from,
                rule,
            };
            let made = audit::noted(Arc::clone(&self.hub), self.router.clone(), maker, request);
            return Either::Left(made.map(Ok).boxed());
        }
        Either::Right(self.router.clone().call(request))
    }

    /// Passes a request on that is one of so many a day or a minute.
    async fn count_and_pass(
        mut self,
        principal: Principal,
        request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let path = request.uri().path();
        if let Err(refused) = self.hub.quota.count_request(principal.name()).await {
            return Ok(refusal::too_many(path, &refused));
        }
        if path == "/v1/chat/completions" {
            return Ok(openai::post_known(self.hub, principal, request).await);
        }
        let request = self.signed(principal, request);
        self.router.call(request).await
    }

    /// The request with who makes it, and from where.
    fn signed(&self, principal: Principal, request: Request<Incoming>) -> Request<Body> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(principal);
        request.extensions_mut().insert(Address(self.from));
        request
    }

    /// The answer to a request that goes no further. A connection that nothing was let
    /// in by is closed after it: its body is not waited for, and its place is free.
    fn closing(&self, mut refusal: Response) -> Response {
        if self.slot.as_ref().is_some_and(|it| !it.is_identified()) {
            let close = HeaderValue::from_static("close");
            refusal.headers_mut().insert(header::CONNECTION, close);
        }
        refusal
    }

    /// Looks for the key and tries once more.
    async fn again(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        if let Some(oauth) = self.hub.access.oauth() {
            oauth.refresh().await;
        }
        match self.admit(&request) {
            Ok(admitted) => self.pass(admitted, request).await,
            Err(Stopped::Refused(refusal)) => Ok(self.closing(*refusal)),
            Err(Stopped::UnknownKey) => {
                let path = request.uri().path();
                let refusal = refusal::unauthorized(path, &self.hub.access, &Denied::UnknownKey);
                Ok(self.closing(refusal))
            }
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Guarded {
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let sends_hsts = self.hub.sends_hsts && !is_localhost(request.headers());
        let answer = match self.admit(&request) {
            Ok(admitted) => self.pass(admitted, request),
            Err(Stopped::Refused(refusal)) => {
                let refusal = self.closing(*refusal);
                self.hub.turned_away.count(refusal.status());
                Either::Left(ready(Ok(refusal)).boxed())
            }
            Err(Stopped::UnknownKey) => Either::Left(self.clone().again(request).boxed()),
        };
        if sends_hsts {
            return Either::Left(answer.map_ok(with_hsts).boxed());
        }
        answer
    }
}

/// Whether a browser asked for `localhost`, whose other ports are other programs.
fn is_localhost(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let name = host.map_or("", |it| it.split(':').next().unwrap_or_default());
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Tells browsers to use no other than encrypted connections from now on (RFC 6797).
fn with_hsts(mut response: Response) -> Response {
    const YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");
    let headers = response.headers_mut();
    headers.insert(header::STRICT_TRANSPORT_SECURITY, YEAR);
    response
}

impl From<Response> for Stopped {
    fn from(refusal: Response) -> Self {
        Self::Refused(Box::new(refusal))
    }
}
