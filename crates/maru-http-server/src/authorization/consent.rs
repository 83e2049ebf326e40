//! A client's request for a code, and the page on which a person decides.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::Response,
};

use super::{
    super::{
        HubState,
        body::FormBody,
        pages::{Page, PageLanguage, escape, redirect, sentence_page},
        router::ClientAddress,
    },
    SignedInPerson, issuer_for_page,
    person::sign_in_page,
    record, signed_in_person,
};
use maru_auth::{
    AccessRole, ClientError, CodeRequest, Consent, DocumentReader, FormFields, OAuthClient,
    TokenIssuer, redirect_host, redirect_source, redirect_url,
};
use maru_tools::OWN_SERVER_NAME;

/// A valid request of a known client.
struct ClientRequest {
    client: OAuthClient,
    request: CodeRequest,
}

/// `GET /oauth/authorize`: checks the request, and goes on to the consent. The page in
/// between is the hub's own, so that the browser sends the hub's cookie.
pub(crate) async fn authorize(
    State(hub): State<Arc<HubState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = uri.query().unwrap_or_default();
    let checked = async {
        let issuer = issuer_for_page(&hub, language)?;
        read_request(&issuer, language, query).await
    };
    match checked.await {
        Ok(_) => Page::leading_to(language, &format!("/oauth/consent?{query}")).into_response(),
        Err(response) => *response,
    }
}

/// `GET /oauth/consent`: asks the person, who signs in first.
pub(crate) async fn ask(
    State(hub): State<Arc<HubState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = uri.query().unwrap_or_default();
    let checked = async {
        let issuer = issuer_for_page(&hub, language)?;
        let asked = read_request(&issuer, language, query).await?;
        Ok::<_, Box<Response>>((issuer, asked))
    };
    let (issuer, asked) = match checked.await {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let page = match signed_in_person(&hub, &headers) {
        Some(person) => {
            let token = issuer.form_token(&person.session, query);
            let form = ConsentForm {
                language,
                query,
                token: &token,
                requested: issuer.role_of(&asked.request.scope),
                servers: known_servers(&hub, &person),
            };
            form.page(&asked, &person)
        }
        None => sign_in_page(&hub, language, query, None),
    };
    page.into_response()
}

/// `POST /oauth/consent`: what the person decided.
pub(crate) async fn decide(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    FormBody(form): FormBody,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = form.get("query").unwrap_or_default();
    let checked = async {
        let issuer = issuer_for_page(&hub, language)?;
        let asked = read_request(&issuer, language, query).await?;
        Ok::<_, Box<Response>>((issuer, asked))
    };
    let (issuer, asked) = match checked.await {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let person = signed_in_person(&hub, &headers);
    let token = form.get("form_token").unwrap_or_default();
    let person = person.filter(|it| issuer.is_form_token(token, &it.session, query));
    let Some(person) = person else {
        let text = language.pick(
            "This page is no longer valid. Go back to the application and start again.",
            "이 페이지는 더 이상 유효하지 않습니다. 애플리케이션으로 돌아가 다시 시작하십시오.",
        );
        return sentence_page(StatusCode::FORBIDDEN, language, text);
    };
    if form.get("decision") != Some("allow") {
        let denied = ("access_denied", "the person did not allow it");
        return redirect_error(&issuer, &asked.request, denied);
    }
    let requested = form.get("role").and_then(AccessRole::parse);
    let consent = Consent {
        account: person.principal.name(),
        account_hash: person.account_hash,
        role: requested
            .unwrap_or(AccessRole::Reader)
            .min(person.principal.role()),
        servers: match form.get("servers") {
            Some("all") => None,
            _ => Some(form.names_after("server.")),
        },
    };
    let what = ("POST /oauth/consent", asked.client.metadata.name.as_str());
    if let Err(response) = record(&hub, person.principal.name(), address, what).await {
        return *response;
    }
    match issuer.grant(&asked.client, &asked.request, &consent).await {
        Ok(code) => {
            let state = asked.request.state.as_deref();
            let base = issuer.base_url();
            let parameters = [("code", code.as_str())];
            redirect(&redirect_url(
                &asked.request.redirect_uri,
                &parameters,
                state,
                base,
            ))
        }
        Err(error) => {
            tracing::error!("failed to save a consent: {error}");
            let unavailable = ("temporarily_unavailable", "the store does not answer");
            redirect_error(&issuer, &asked.request, unavailable)
        }
    }
}

/// Reads the request of `query`. An error is a page: anybody may register a client, so
/// that a link to the hub sends nobody elsewhere before that person decides.
async fn read_request(
    issuer: &TokenIssuer,
    language: PageLanguage,
    query: &str,
) -> Result<ClientRequest, Box<Response>> {
    let refuse = |text: &str| Box::new(sentence_page(StatusCode::BAD_REQUEST, language, text));
    let fields = FormFields::parse(query).ok_or_else(|| {
        refuse(language.pick(
            "The link to this page is not valid.",
            "이 페이지의 링크가 올바르지 않습니다.",
        ))
    })?;
    let id = fields.get("client_id").unwrap_or_default();
    let found = issuer.clients().find(id, DocumentReader::ConsentPage);
    let client = match found.await {
        Ok(client) => client,
        Err(error @ ClientError::Unavailable(_)) => {
            tracing::info!("a client cannot be checked: {error}");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(Box::new(sentence_page(
                status,
                language,
                &error.to_string(),
            )));
        }
        Err(ClientError::Store(error)) => {
            tracing::error!("failed to read a client: {error}");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let text = ClientError::Store(error).to_string();
            return Err(Box::new(sentence_page(status, language, &text)));
        }
        Err(error) => {
            tracing::info!("a client is refused: {error}");
            let hint = language.pick(
                "Remove the connection in the application and add it again.",
                "애플리케이션에서 연결을 지우고 다시 추가하십시오.",
            );
            return Err(refuse(&format!("{error}. {hint}")));
        }
    };
    if !client.has_redirect(&fields) {
        return Err(refuse(language.pick(
            "The application wants you sent to an address that it did not register. Nothing was allowed.",
            "애플리케이션이 등록하지 않은 주소로 보내려고 합니다. 아무것도 허용하지 않았습니다.",
        )));
    }
    match issuer.parse_request(&fields) {
        Ok(request) => Ok(ClientRequest { client, request }),
        Err(error) => {
            let url = redirect_url(
                fields.get("redirect_uri").unwrap_or_default(),
                &[
                    ("error", error.code),
                    ("error_description", error.description),
                ],
                fields.get("state"),
                issuer.base_url(),
            );
            Err(Box::new(error_page(language, error.description, &url)))
        }
    }
}

/// A page that says what is wrong with a client's request, and leads back to the client.
fn error_page(language: PageLanguage, description: &str, url: &str) -> Response {
    let (problem, back) = match language {
        PageLanguage::English => (
            "The request of the application is not valid",
            "Go back to the application at",
        ),
        PageLanguage::Korean => (
            "애플리케이션의 요청이 올바르지 않습니다",
            "애플리케이션으로 돌아가기:",
        ),
    };
    let (description, link) = (escape(description), escape(url));
    let host = escape(redirect_host(url));
    let body = format!(
        "<p>{problem}: {description}</p><p><a href=\"{link}\" rel=\"noreferrer\">{back} {host}</a></p>"
    );
    let page = Page {
        status: StatusCode::BAD_REQUEST,
        ..Page::new(language, "maru", body)
    };
    page.into_response()
}

fn redirect_error(
    issuer: &TokenIssuer,
    request: &CodeRequest,
    (code, description): (&str, &str),
) -> Response {
    let parameters = [("error", code), ("error_description", description)];
    redirect(&redirect_url(
        &request.redirect_uri,
        &parameters,
        request.state.as_deref(),
        issuer.base_url(),
    ))
}

/// The servers that a person may choose from.
fn known_servers(hub: &HubState, person: &SignedInPerson) -> Vec<String> {
    let registered = hub.servers.list();
    let names = registered.iter().map(|it| it.server.name.to_string());
    let mut names: Vec<String> = names.chain([OWN_SERVER_NAME.to_owned()]).collect();
    names.retain(|it| person.principal.may_reach(it));
    names.sort();
    names
}

/// What the page of a consent shows.
struct ConsentForm<'a> {
    language: PageLanguage,
    query: &'a str,
    token: &'a str,
    requested: AccessRole,
    servers: Vec<String>,
}

impl ConsentForm<'_> {
    fn page(&self, asked: &ClientRequest, person: &SignedInPerson) -> Page {
        let language = self.language;
        let name = escape(&asked.client.metadata.name);
        let title = match language {
            PageLanguage::English => format!("Allow {name} to use maru?"),
            PageLanguage::Korean => format!("{name} 애플리케이션에 maru 사용을 허용할까요?"),
        };
        let warning = language.pick(
            "Allow this only if you have just started it yourself. maru cannot check the name of the application; check where you are sent back to.",
            "방금 직접 시작한 경우에만 허용하십시오. maru는 애플리케이션의 이름을 확인할 수 없으므로 돌아갈 주소를 확인하십시오.",
        );
        let (allow, deny) = match language {
            PageLanguage::English => ("Allow", "Deny"),
            PageLanguage::Korean => ("허용", "거부"),
        };
        let facts = self.facts(asked, person);
        let roles = self.roles(person.principal.role());
        let servers = self.server_choice(asked.request.only_server());
        let (query, token) = (escape(self.query), escape(self.token));
        let body = format!(
            "<h1>{title}</h1>{facts}<form method=\"post\" action=\"/oauth/consent\">\
             <input type=\"hidden\" name=\"query\" value=\"{query}\">\
             <input type=\"hidden\" name=\"form_token\" value=\"{token}\">\
             {roles}{servers}<p class=\"soft\">{warning}</p>\
             <div class=\"actions\"><button class=\"main\" name=\"decision\" value=\"allow\">{allow}</button>\
             <button name=\"decision\" value=\"deny\">{deny}</button></div></form>"
        );
        Page {
            form_target: Some(redirect_source(&asked.request.redirect_uri)),
            ..Page::new(language, "maru", body)
        }
    }

    /// Who asks, where the person is sent back to, and as whom.
    fn facts(&self, asked: &ClientRequest, person: &SignedInPerson) -> String {
        let (application, back, account, limits) = match self.language {
            PageLanguage::English => (
                "Application",
                "Sends you back to",
                "Your account",
                "Limited to",
            ),
            PageLanguage::Korean => ("애플리케이션", "돌아갈 곳", "내 계정", "계정의 제한"),
        };
        let id = if asked.client.id.contains("://") {
            format!(
                "<br><span class=\"soft\">{}</span>",
                escape(&asked.client.id)
            )
        } else {
            String::new()
        };
        let lists = person.principal.grants().map(|grants| {
            let names = grants.servers().into_iter().chain(grants.tools()).flatten();
            let names: Vec<String> = names.map(|it| escape(it)).collect();
            format!("<dt>{limits}</dt><dd>{}</dd>", names.join(", "))
        });
        format!(
            "<dl><dt>{application}</dt><dd>{}{id}</dd><dt>{back}</dt><dd><strong>{}</strong></dd>\
             <dt>{account}</dt><dd>{} ({})</dd>{}</dl>",
            escape(&asked.client.metadata.name),
            escape(redirect_host(&asked.request.redirect_uri)),
            escape(person.principal.name()),
            person.principal.role().as_str(),
            lists.unwrap_or_default(),
        )
    }

    /// The roles that the person may give, the requested one chosen.
    fn roles(&self, own: AccessRole) -> String {
        let legend = self.language.pick("It may", "허용 범위");
        let chosen = self.requested.min(own);
        let mut choices = String::new();
        for role in AccessRole::ALL.into_iter().filter(|it| *it <= own) {
            let text = match (role, self.language) {
                (AccessRole::Reader, PageLanguage::English) => "list tools and servers",
                (AccessRole::Agent, PageLanguage::English) => "list and call tools",
                (AccessRole::Admin, PageLanguage::English) => {
                    "do everything, also change servers, tools and tokens"
                }
                (AccessRole::Reader, PageLanguage::Korean) => "도구와 서버 목록 보기",
                (AccessRole::Agent, PageLanguage::Korean) => "도구 목록 보기와 호출",
                (AccessRole::Admin, PageLanguage::Korean) => {
                    "서버, 도구, 토큰 변경을 포함한 모든 작업"
                }
            };
            let name = role.as_str();
            let checked = if role == chosen { " checked" } else { "" };
            choices += &format!(
                "<label><input type=\"radio\" name=\"role\" value=\"{name}\"{checked}> {text} <span class=\"soft\">({name})</span></label>"
            );
        }
        format!("<fieldset><legend>{legend}</legend>{choices}</fieldset>")
    }

    /// All servers or some; the one that the request is for is chosen.
    fn server_choice(&self, only: Option<&str>) -> String {
        let (legend, all, some) = match self.language {
            PageLanguage::English => ("On these servers", "all that I may use", "only these:"),
            PageLanguage::Korean => ("대상 서버", "내가 쓸 수 있는 모든 서버", "다음 서버만:"),
        };
        let (all_checked, some_checked) = match only {
            None => (" checked", ""),
            Some(_) => ("", " checked"),
        };
        let mut list = String::new();
        for name in &self.servers {
            let checked = if only == Some(name) { " checked" } else { "" };
            let name = escape(name);
            list += &format!(
                "<label><input type=\"checkbox\" name=\"server.{name}\"{checked}> {name}</label>"
            );
        }
        format!(
            "<fieldset><legend>{legend}</legend>\
             <label><input type=\"radio\" name=\"servers\" value=\"all\"{all_checked}> {all}</label>\
             <label><input type=\"radio\" name=\"servers\" value=\"some\"{some_checked}> {some}</label>\
             <div class=\"servers\">{list}</div></fieldset>"
        )
    }
}
