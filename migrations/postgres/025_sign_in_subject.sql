-- Whose sign-in it is, so that it ends with that caller's token.
ALTER TABLE server_sign_in ADD COLUMN subject TEXT NOT NULL DEFAULT '';
-- Sign-ins and sign-outs reach every hub. Renewals and leases are updates: a hub reads them
-- when its own token is about to expire or is refused.
CREATE TRIGGER notify_change AFTER INSERT OR DELETE ON server_credential
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
