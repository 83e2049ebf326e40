//! The gate that every route stands behind: Host, Origin, token and role come
//! before anything else.

use std::{convert::Infallible, future::ready, net::IpAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header},
    response::Response,
};
use futures_util::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use hyper::body::Incoming;
use tower_service::Service as _;

use super::{
    HubState,
    admission::ConnectionSlot,
    audit::{self, ChangeActor},
    console, rejection,
    request_observer::{ObservedResponse, RequestObserver},
    routes::{self, RouteMatch, RouteRule, RouteRules},
};
use crate::auth::{Error, Principal};

/// The router behind its gate.
#[derive(Clone, Debug)]
pub struct GuardedRouter {
    hub: Arc<HubState>,
    rules: RouteRules,
    router: Router,
    /// Who is at the other end; absent from this machine without an address.
    from: Option<IpAddr>,
    /// The place of the connection, where connections are bounded.
    slot: Option<Arc<ConnectionSlot>>,
}

/// A request that was let in.
struct AdmittedRequest {
    /// Nobody in particular where everyone may.
    principal: Option<Principal>,
    /// The rule of a change, which is noted.
    change: Option<RouteRule>,
    /// Whether it counts against the limits of who asks.
    counts_against_quota: bool,
}

type ResponseFuture = BoxFuture<'static, Result<Response, Infallible>>;

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) Option<IpAddr>);

/// Why a request goes no further, or not yet.
enum AdmitError {
    /// This is the answer.
    Rejected(Box<Response>),
    /// Its token was signed with a key that we have not seen yet.
    UnknownKey,
}

impl GuardedRouter {
    /// Every route, guarded.
    pub fn new(hub: Arc<HubState>) -> Self {
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
    pub(super) fn for_connection(&self, from: IpAddr, slot: Arc<ConnectionSlot>) -> Self {
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
    fn admit(
        &self,
        verdict: RouteMatch<'_>,
        request: &Request<Incoming>,
    ) -> Result<AdmittedRequest, AdmitError> {
        let path = request.uri().path();
        self.hub
            .reloadable()
            .origin_policy
            .check(request.uri(), request.headers())
            .map_err(|(status, why)| rejection::error_response(path, status, why))?;
        let headers = request.headers();
        if headers
            .get_all(header::AUTHORIZATION)
            .iter()
            .nth(1)
            .is_some()
        {
            // Whoever reads the other one would see another caller.
            let why = "there is more than one Authorization header; send one";
            return Err(rejection::error_response(path, StatusCode::BAD_REQUEST, why).into());
        }
        if matches!(verdict, RouteMatch::Rule(rule) if rule.min_role.is_none()) {
            return Ok(AdmittedRequest {
                principal: None,
                change: None,
                counts_against_quota: false,
            });
        }
        let shows_token = headers.contains_key(header::AUTHORIZATION);
        let token = headers.get(header::AUTHORIZATION);
        // OpenAI's clients cannot do without a key; this one stands for none.
        let token = token.filter(|it| !(path.starts_with("/v1/") && *it == "Bearer local"));
        let access = &self.hub.access;
        let takes_cookie = matches!(verdict, RouteMatch::Rule(rule) if rule.accepts_cookie());
        let identified = if takes_cookie && !shows_token {
            self.hub.identify(headers)
        } else {
            access.identify(token.map(HeaderValue::as_bytes))
        };
        let by_cookie = || {
            takes_cookie && !shows_token && console::session_cookie(&self.hub, headers).is_some()
        };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let principal = match identified {
            Ok(_) if !reads && by_cookie() && !headers.contains_key(routes::CONSOLE_HEADER) => {
                let why = "a change by cookie needs the header x-maru-console";
                return Err(rejection::error_response(path, StatusCode::FORBIDDEN, why).into());
            }
            Ok(principal) => principal,
            Err(Error::UnknownKey) => return Err(AdmitError::UnknownKey),
            Err(denied) => return Err(rejection::unauthorized(path, access, &denied).into()),
        };
        if let Some(slot) = &self.slot
            && slot.identify(!principal.is_local()).is_err()
        {
            return Err(rejection::too_many_connections(path).into());
        }
        match verdict {
            RouteMatch::Rule(rule) if rule.allows(&principal) => Ok(AdmittedRequest {
                principal: Some(principal),
                change: rule.is_change().then(|| rule.clone()),
                counts_against_quota: rule.counts_against_quota,
            }),
            RouteMatch::Rule(_) if token.is_none() => {
                Err(rejection::unauthorized(path, access, &Error::MissingToken).into())
            }
            RouteMatch::Rule(rule) => {
                let refusal = rejection::forbidden(path, access, rule, &principal);
                let rule = rule.clone();
                let maker = ChangeActor {
                    principal,
                    from: self.from,
                    rule,
                };
                maker.record_denied(&self.hub, path);
                Err(refusal.into())
            }
            RouteMatch::MethodNotAllowed(known) => {
                Err(rejection::method_not_allowed(path, &known).into())
            }
            RouteMatch::NotFound => Err(rejection::not_found(path).into()),
        }
    }

    /// Passes a request on that was let in.
    fn forward(&self, admitted: AdmittedRequest, request: Request<Incoming>) -> ResponseFuture {
        let Some(principal) = admitted.principal else {
            return self.router.clone().call(request.map(Body::new)).boxed();
        };
        if admitted.counts_against_quota {
            let model = self.clone().count_and_forward(principal, request);
            return model.boxed();
        }
        let request = self.with_caller(principal.clone(), request);
        if let Some(rule) = admitted.change {
            let maker = ChangeActor {
                principal,
                from: self.from,
                rule,
            };
            let made =
                audit::run_audited(Arc::clone(&self.hub), self.router.clone(), maker, request);
            return made.map(Ok).boxed();
        }
        self.router.clone().call(request).boxed()
    }

    /// Passes a request on that is one of so many a day or a minute.
    async fn count_and_forward(
        mut self,
        principal: Principal,
        request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let path = request.uri().path();
        if let Err(refused) = self.hub.quota.count_request(principal.name()).await {
            return Ok(rejection::too_many_requests(path, &refused));
        }
        let request = self.with_caller(principal, request);
        self.router.call(request).await
    }

    /// The request with who makes it, and from where.
    fn with_caller(&self, principal: Principal, request: Request<Incoming>) -> Request<Body> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(principal);
        request.extensions_mut().insert(ClientAddress(self.from));
        request
    }

    /// The answer to a request that goes no further. A connection that nothing was let
    /// in by is closed after it: its body is not waited for, and its place is free.
    fn close_if_unidentified(&self, mut refusal: Response) -> Response {
        if self.slot.as_ref().is_some_and(|it| !it.is_identified()) {
            let close = HeaderValue::from_static("close");
            refusal.headers_mut().insert(header::CONNECTION, close);
        }
        refusal
    }

    /// Looks for the key and tries once more.
    async fn retry_with_fresh_keys(
        self,
        request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        if let Some(oauth) = self.hub.access.oauth() {
            oauth.refresh().await;
        }
        match self.admit(self.match_route(&request), &request) {
            Ok(admitted) => self.forward(admitted, request).await,
            Err(AdmitError::Rejected(refusal)) => Ok(self.close_if_unidentified(*refusal)),
            Err(AdmitError::UnknownKey) => {
                let path = request.uri().path();
                let refusal = rejection::unauthorized(path, &self.hub.access, &Error::UnknownKey);
                Ok(self.close_if_unidentified(refusal))
            }
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for GuardedRouter {
    type Response = Response;
    type Error = Infallible;
    type Future = ObservedResponse<ResponseFuture>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let verdict = self.match_route(&request);
        let rule = match verdict {
            RouteMatch::Rule(rule) => Some(rule),
            RouteMatch::MethodNotAllowed(_) | RouteMatch::NotFound => None,
        };
        let observer = RequestObserver::new(&self.hub.metrics, rule, request.headers());
        let answer = observer.span().in_scope(|| self.answer(verdict, request));
        observer.observe(answer)
    }
}

impl GuardedRouter {
    fn match_route(&self, request: &Request<Incoming>) -> RouteMatch<'_> {
        let path = request.uri().path();
        self.rules.match_request(request.method(), path)
    }

    /// Admits a request and passes it on, or says why not.
    fn answer(&self, verdict: RouteMatch<'_>, request: Request<Incoming>) -> ResponseFuture {
        let sends_hsts = self.hub.sends_hsts && !is_localhost(request.headers());
        let answer = match self.admit(verdict, &request) {
            Ok(admitted) => self.forward(admitted, request),
            Err(AdmitError::Rejected(refusal)) => {
                let refusal = self.close_if_unidentified(*refusal);
                self.hub.rejected_requests.count(refusal.status());
                ready(Ok(refusal)).boxed()
            }
            Err(AdmitError::UnknownKey) => self.clone().retry_with_fresh_keys(request).boxed(),
        };
        if sends_hsts {
            return answer.map_ok(with_hsts).boxed();
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
    const HSTS_MAX_AGE: HeaderValue = HeaderValue::from_static("max-age=31536000");
    let headers = response.headers_mut();
    headers.insert(header::STRICT_TRANSPORT_SECURITY, HSTS_MAX_AGE);
    response
}

impl From<Response> for AdmitError {
    fn from(refusal: Response) -> Self {
        Self::Rejected(Box::new(refusal))
    }
}
