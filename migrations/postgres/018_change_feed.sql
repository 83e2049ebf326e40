-- Tells every hub that shares these tables which one changed. A hub that missed a
-- notification reads everything again.
CREATE FUNCTION maru_notify_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('maru_change', TG_TABLE_NAME);
    RETURN NULL;
END
$$;
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON token
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON mcp_servers
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON h_custom_tool
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON h_custom_tool_draft
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON tool_off
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON tool_pin
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON h_mcp_tool_limit
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON tool_rate
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON data_source
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON hub_setting
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON console_session
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON model_budget
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
