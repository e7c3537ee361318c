-- Divide the tables that hold most of the bytes by a hash of the model, or of the build of buckets.
-- Stop all services and workers, make a backup, and run this once as the owner of the tables:
--     psql --single-transaction --set ON_ERROR_STOP=1 --file partitions.sql modelkin
-- It copies the tables, so it needs room for the largest one a second time.
DO $divide$
DECLARE
    parts CONSTANT int := 16;
    divided record;
    old text;
    each record;
BEGIN
    FOR divided IN
        SELECT * FROM (VALUES
            ('signatures', 'model_id'),
            ('revisions', 'model_id'),
            ('tensor_counts', 'model_id'),
            ('tags', 'model_id'),
            ('bucket_entries', 'build_id'),
            ('bucket_models', 'build_id')
        ) AS t (name, key)
    LOOP
        old := divided.name || '_whole';
        EXECUTE format('ALTER TABLE %I RENAME TO %I', divided.name, old);
        EXECUTE format(
            'CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY HASH (%I)',
            divided.name, old, divided.key
        );
        FOR part IN 0 .. parts - 1 LOOP
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS %s, REMAINDER %s)',
                divided.name || '_' || part, divided.name, parts, part
            );
        END LOOP;
        EXECUTE format('INSERT INTO %I SELECT * FROM %I', divided.name, old);

        -- Keys and indexes keep their names, by which migrations know them.
        FOR each IN
            SELECT conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint
            WHERE conrelid = old::regclass AND contype IN ('p', 'f')
        LOOP
            EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', old, each.conname);
            EXECUTE format(
                'ALTER TABLE %I ADD CONSTRAINT %I %s', divided.name, each.conname, each.definition
            );
        END LOOP;
        FOR each IN SELECT indexname, indexdef FROM pg_indexes WHERE tablename = old LOOP
            EXECUTE format('DROP INDEX %I', each.indexname);
            EXECUTE replace(each.indexdef, old || ' ', divided.name || ' ');
        END LOOP;

        -- So do the policies and the rights of other roles.
        FOR each IN SELECT * FROM pg_policies WHERE tablename = old LOOP
            EXECUTE format(
                'CREATE POLICY %I ON %I AS %s FOR %s TO %s USING (%s)',
                each.policyname, divided.name, each.permissive, each.cmd,
                array_to_string(each.roles, ', '), replace(each.qual, old || '.', divided.name || '.')
            ) || coalesce(
                ' WITH CHECK (' || replace(each.with_check, old || '.', divided.name || '.') || ')',
                ''
            );
        END LOOP;
        FOR each IN SELECT * FROM pg_class WHERE oid = old::regclass LOOP
            IF each.relrowsecurity THEN
                EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', divided.name);
            END IF;
            IF each.relforcerowsecurity THEN
                EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', divided.name);
            END IF;
        END LOOP;
        FOR each IN
            SELECT grantee, privilege_type FROM information_schema.role_table_grants
            WHERE table_name = old AND grantee <> current_user
        LOOP
            EXECUTE format(
                'GRANT %s ON %I TO %I', each.privilege_type, divided.name, each.grantee
            );
        END LOOP;
        EXECUTE format('DROP TABLE %I', old);
    END LOOP;
END
$divide$;
