-- Write the tenant into rows of models from before row-level security, 1,000 rows a transaction.
-- Services go on beside it. Run it as the owner of the tables, and again where it was stopped:
--     psql --set ON_ERROR_STOP=1 --file row-tenants.sql modelkin
-- Each written row takes its room once more until a vacuum.
DO $rows$
DECLARE
    part text;
    at bigint;
    written bigint;
BEGIN
    FOREACH part IN ARRAY ARRAY[
        'signatures', 'revisions', 'tags', 'tensor_counts', 'sketches', 'banded_signatures'
    ]
    LOOP
        at := 0;
        LOOP
            EXECUTE format($sql$
                WITH old AS MATERIALIZED (
                    SELECT tableoid, ctid FROM %1$I WHERE tenant_id IS NULL AND model_id >= $1
                    ORDER BY model_id LIMIT 1000 FOR UPDATE SKIP LOCKED
                ), written AS (
                    UPDATE %1$I p SET tenant_id = m.tenant_id FROM models m, old
                    WHERE m.id = p.model_id AND p.tableoid = old.tableoid AND p.ctid = old.ctid
                    RETURNING p.model_id
                )
                SELECT count(*), max(model_id) FROM written
            $sql$, part) INTO written, at USING at;
            COMMIT;
            EXIT WHEN written = 0;
        END LOOP;
    END LOOP;
END
$rows$;
