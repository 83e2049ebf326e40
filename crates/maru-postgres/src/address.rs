//! Where a PostgreSQL database is and which role connects.

use std::{borrow::Cow, error::Error as _};

use maru_runtime::SecretString;
use percent_encoding::percent_decode_str;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::{
    Error,
    tls::{PostgresTls, RootCertificates, TlsMode, TlsOptions},
};

/// An address that can be connected to. Its `Debug` leaves the password out.
#[derive(Clone, Debug)]
pub struct PostgresAddress {
    config: Config,
    tls: TlsOptions,
}

/// A database in parts.
#[derive(Clone, Debug)]
pub struct PostgresServer {
    /// Its host name, IP address or socket directory.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The role that connects.
    pub user: String,
    /// The password of the role.
    pub password: SecretString,
    /// The database.
    pub database: String,
    /// Whether and how the connection is encrypted.
    pub tls: TlsOptions,
}

impl PostgresAddress {
    /// Parses `postgres://user:password@host:port/database?sslmode=verify-full`.
    pub fn parse(url: &str) -> Result<Self, Error> {
        if !is_postgres_url(url) {
            return Err(Error::Scheme);
        }
        if url.matches('@').count() > 1 {
            return Err(Error::UnescapedAt);
        }
        let (url, tls) = split_tls_options(url)?;
        let config: Config = url.parse().map_err(|error| parse_error(&error))?;
        Self::new(config, tls)
    }

    /// Checks an address that is given in parts.
    pub fn from_server(server: &PostgresServer) -> Result<Self, Error> {
        let mut config = Config::new();
        config
            .host(&server.host)
            .port(server.port)
            .user(&server.user)
            .password(server.password.reveal())
            .dbname(&server.database);
        Self::new(config, server.tls.clone())
    }

    fn new(mut config: Config, tls: TlsOptions) -> Result<Self, Error> {
        if config.get_hosts().is_empty() {
            // TLS needs a name, be it the address.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        if config.get_hosts().is_empty() {
            return Err(Error::NoHost);
        }
        let has_network = config.get_hosts().iter().any(is_network_host);
        config.ssl_mode(match tls.checked_mode()? {
            // PostgreSQL has no TLS on Unix sockets.
            _ if !has_network => SslMode::Disable,
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        Ok(Self { config, tls })
    }

    /// The connector for this address; reads the files of its certificates.
    pub fn tls_connector(&self) -> Result<PostgresTls, Error> {
        PostgresTls::load(&self.tls)
    }

    /// Whether a server in the middle could read along: nothing makes it show a
    /// certificate that is verified, and it is on another machine.
    pub fn is_unverified_remote(&self) -> bool {
        let is_remote = |host: &Host| match host {
            Host::Tcp(name) => !is_loopback(name),
            #[cfg(unix)]
            Host::Unix(_) => false,
        };
        !self.tls.verifies() && self.config.get_hosts().iter().any(is_remote)
    }

    /// The role that connects, if the address names one.
    pub fn user(&self) -> Option<&str> {
        self.config.get_user()
    }

    /// Every host and host address that a connection may go to; a path is a socket.
    pub fn hosts(&self) -> Vec<String> {
        let addresses = self.config.get_hostaddrs().iter().map(|it| it.to_string());
        let names = self.config.get_hosts().iter().map(host_name);
        names.chain(addresses).collect()
    }

    /// Host, port and database, for people.
    pub fn redacted_location(&self) -> String {
        let config = &self.config;
        let ports = config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).unwrap_or(&5432);
        let hosts = config.get_hosts().iter().map(host_name).enumerate();
        let hosts: Vec<String> = hosts
            .map(|(at, host)| format!("{host}:{}", port(at)))
            .collect();
        let database = config.get_dbname().or(config.get_user());
        let database = database.unwrap_or("(default)");
        format!("in PostgreSQL at {}, database {database}", hosts.join(","))
    }

    /// The driver's settings with these session settings; those in the address win.
    pub fn config_with_defaults(&self, settings: &[(&str, &str)]) -> Config {
        let own_options = self.config.get_options().map(str::to_owned);
        self.config_with_options(option_texts(settings).chain(own_options))
    }

    /// The driver's settings with these session settings, whatever the address says.
    pub fn config_with_overrides(&self, settings: &[(&str, &str)]) -> Config {
        let own_options = self.config.get_options().map(str::to_owned);
        self.config_with_options(own_options.into_iter().chain(option_texts(settings)))
    }

    fn config_with_options(&self, options: impl Iterator<Item = String>) -> Config {
        let options: Vec<String> = options.collect();
        let mut config = self.config.clone();
        // PgBouncer refuses options, even if there are none.
        if !options.is_empty() {
            config.options(options.join(" "));
        }
        config
    }
}

/// Whether a text is meant as the URL of a PostgreSQL database.
fn is_postgres_url(url: &str) -> bool {
    let schemes = ["postgres://", "postgresql://"];
    schemes.iter().any(|it| url.starts_with(it))
}

/// Takes the options of TLS out of a URL, because the driver knows only some of them.
fn split_tls_options(url: &str) -> Result<(String, TlsOptions), Error> {
    let mut tls = TlsOptions::default();
    // A password may have a question mark.
    let after_credentials = url.find('@').unwrap_or(0);
    let Some(query) = url[after_credentials..].find('?') else {
        return Ok((url.to_owned(), tls));
    };
    let (base, query) = url.split_at(after_credentials + query);
    let mut other_options = Vec::new();
    for option in query[1..].split('&') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = percent_decode_str(value).decode_utf8();
        let value: Cow<'_, str> = value.map_err(|_| Error::Unreadable)?;
        match name {
            "sslmode" => tls.mode = Some(TlsMode::parse(&value).ok_or(Error::UnknownTlsMode)?),
            "sslrootcert" => tls.root_certificates = Some(RootCertificates::parse(&value)),
            "sslcert" => tls.client_certificate = Some(value.as_ref().into()),
            "sslkey" => tls.client_key = Some(value.as_ref().into()),
            _ => other_options.push(option),
        }
    }
    let separator = if other_options.is_empty() { "" } else { "?" };
    let options = other_options.join("&");
    Ok((format!("{base}{separator}{options}"), tls))
}

fn option_texts(settings: &[(&str, &str)]) -> impl Iterator<Item = String> {
    settings.iter().map(|(name, value)| {
        // A backslash keeps a space within the value.
        let value = value.replace('\\', "\\\\").replace(' ', "\\ ");
        format!("-c {name}={value}")
    })
}

fn is_network_host(host: &Host) -> bool {
    matches!(host, Host::Tcp(_))
}

fn is_loopback(name: &str) -> bool {
    let address: Result<std::net::IpAddr, _> = name.parse();
    name == "localhost" || address.is_ok_and(|it| it.is_loopback())
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    }
}

fn parse_error(error: &tokio_postgres::Error) -> Error {
    let reason = error.source().map(ToString::to_string).unwrap_or_default();
    if reason.starts_with("invalid value for option") {
        // It names one of PostgreSQL's options, not what was written.
        Error::InvalidValue(reason)
    } else {
        Error::Unreadable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_names_host_port_and_database_and_no_password() {
        let cases = [
            (
                "postgres://u:hush@db.example/maru",
                "db.example:5432, database maru",
            ),
            (
                "postgresql://u:hu%40sh@[::1]:5433/m",
                "::1:5433, database m",
            ),
            ("postgres://u:hush@a:1,b:2/m", "a:1,b:2, database m"),
            (
                "postgres:///m?host=/run/pg&password=hush",
                "/run/pg:5432, database m",
            ),
            ("postgres://u:hush@a", "a:5432, database u"),
            (
                "postgres://u:hu?sh@a/m?sslmode=require&connect_timeout=3",
                "a:5432, database m",
            ),
        ];
        for (url, location) in cases {
            let address = PostgresAddress::parse(url).unwrap();
            assert_eq!(
                address.redacted_location(),
                format!("in PostgreSQL at {location}")
            );
            assert!(!format!("{address:?}").contains("hush"), "{address:?}");
        }
    }

    #[test]
    fn an_address_that_cannot_work_is_refused_without_quoting_it() {
        let cases = [
            ("mysql://u:hush@a/m", "postgres://"),
            ("host=a password=hush", "postgres://"),
            ("postgres://u:hu@sh@a/m", "%40"),
            ("postgres://u:hush@a:port/m", "`port`"),
            ("postgres://u:hush@a/m?hat=1", "options"),
            ("postgres://u:hush@", "no host"),
            ("postgres://u:hush@a/m?sslmode=hush", "verify-full"),
            ("postgres://u:hush@a/m?sslrootcert=/hush", "require"),
            (
                "postgres://u:hush@a/m?sslmode=prefer&sslrootcert=/ca",
                "require",
            ),
            (
                "postgres://u:hush@a/m?sslmode=require&sslrootcert=system",
                "verify-full",
            ),
            ("postgres://u:hush@a/m?sslcert=/c", "go together"),
        ];
        for (url, expected) in cases {
            let message = PostgresAddress::parse(url).unwrap_err().to_string();
            assert!(message.contains(expected), "{url}: {message}");
            assert!(!message.contains("hu"), "{message}");
        }
    }

    #[test]
    fn tls_is_asked_for_as_the_address_says() {
        let cases = [
            ("postgres://a/m", SslMode::Prefer),
            ("postgres://a/m?sslmode=disable", SslMode::Disable),
            ("postgres://a/m?sslmode=allow", SslMode::Prefer),
            ("postgres://a/m?sslmode=require", SslMode::Require),
            (
                "postgres://a/m?sslmode=verify-ca&sslrootcert=%2Fca.pem",
                SslMode::Require,
            ),
            ("postgres://a/m?sslrootcert=system", SslMode::Require),
            (
                "postgres:///m?host=/run/pg&sslmode=verify-full",
                SslMode::Disable,
            ),
        ];
        for (url, mode) in cases {
            let address = PostgresAddress::parse(url).unwrap();
            assert_eq!(address.config.get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn later_settings_win() {
        let url = "postgres://a/m?options=-c%20statement_timeout=5";
        let address = PostgresAddress::parse(url).unwrap();
        let ours = [("TimeZone", "UTC"), ("search_path", "a, b")];
        assert_eq!(
            address.config_with_defaults(&ours).get_options(),
            Some("-c TimeZone=UTC -c search_path=a,\\ b -c statement_timeout=5")
        );
        assert_eq!(
            address.config_with_overrides(&ours).get_options(),
            Some("-c statement_timeout=5 -c TimeZone=UTC -c search_path=a,\\ b")
        );
    }
}
